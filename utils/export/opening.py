"""Open exported files; one that this program did not just write is first tried in a child process.

A runtime trusts a file: a graph may ask for terabytes, loop for hours, or crash the process. So the
child loads it and runs it once, on noise, within limits of memory and time:

    python -m duet.utils.export.opening PATH FORMAT THREADS

prints a line of JSON: what is wrong, or "".
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from duet import backend
from duet.backend.cores import cores_of_rank, default_threads
from duet.utils.errors import UserError, brief, naming_weights
from duet.utils.export.formats import FORMATS, Format, find_format, format_named, size_of
from duet.utils.export.metadata import Runtime, example_images, fault_of_returned
from duet.utils.files.json_files import parse_json
from duet.utils.optional import import_optional
from duet.utils.project import PROJECT

MODULE = "duet.utils.export.opening"
MOST_LANES = 8
POLL_SECONDS, EXIT_NO_MEMORY = 0.05, 77
SECONDS = 120  # for loading a file and running it once
# Memory for a file beside the runtime's own libraries: all maps of a yolov5x together have 320
# bytes per byte of its images, and OpenVINO holds weights several times while it compiles them.
BASE_BYTES, TIMES_FILE, TIMES_IMAGES, THREAD_BYTES = 2 << 30, 8, 320, 256 << 20
REMEDY = "the file is damaged, hostile or too large for this machine; export it again"


def open_to_detect(path: Path, runtime: str, several: bool) -> tuple[Runtime, int]:
    """Open an exported file that --weights names; return it and its number of lanes.

    For `several` batches a thread-safe runtime has a lane per core, so that no batch waits for
    another: YOLOv5n at 640 px on four cores takes two thirds of the processor time that it takes
    with one lane of four threads.
    """
    threads, lanes = usable_threads(), 1
    if several and format_to_run(path, runtime).side_by_side:
        lanes = min(threads, MOST_LANES)
    return open_runtime(path, threads // lanes, runtime), lanes


def usable_threads() -> int:
    """Return the number of threads for runtimes: the process's cores, or OMP_NUM_THREADS."""
    return min(default_threads(), cores_of_rank())


def open_runtime(
    path: str | Path, threads: int | None = None, runtime: str = "", is_trusted: bool = False
) -> Runtime:
    """Load an exported file; UserError if it cannot be run.

    Args:
        threads: number of CPU threads; None: chosen by the runtime.
        runtime: name of a format whose runtime to use; "" for the file's own.
        is_trusted: whether this program has just written it; others are tried in a child first.
    """
    path = Path(path)
    row = format_to_run(path, runtime)
    if not path.exists():
        raise UserError(f"--weights {path}: no such file")
    with naming_weights(path):
        if row.is_tried and not is_trusted:
            try_in_child(path, row, threads or os.cpu_count() or 1)
        return row.open(path, threads)


def format_to_run(path: Path, name: str = "") -> Format:
    """Return the format named by --runtime, else the file's own; UserError if it cannot read it."""
    if not name:
        return find_format(path)
    able = {row.name: row for row in FORMATS if row.can_read(path)}
    if name not in able:
        fit = ", ".join(able)
        raise UserError(f"--runtime {name} does not read --weights {path}; accepted: {fit}")
    return able[name]


def try_in_child(path: Path, row: Format, threads: int) -> None:
    command = [sys.executable, "-m", MODULE, str(path.absolute()), row.name, str(threads)]
    try:
        done = subprocess.run(
            command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        text = f"its trial run failed: it did not finish within {SECONDS} s; {REMEDY}"
        raise UserError(text) from error
    if not done.stdout:  # it ended without an outcome
        code = done.returncode
        name = signal.Signals(-code).name if code < 0 else f"status {code}"
        killed = name == "SIGKILL" or code == EXIT_NO_MEMORY
        reason = "it was killed, as when memory runs out" if killed else f"it crashed ({name})"
        raise UserError(f"its trial run failed: {reason}; {REMEDY}")
    if fault := parse_json(done.stdout):
        raise UserError(fault)


# Runs in the child.


def main() -> None:
    path, name, threads = sys.argv[1:]
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as outcome:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries may write there
        try:
            fault = fault_of_trial(Path(path), format_named(name), int(threads))
        except Exception as error:  # of libraries, with classes of their own
            fault = words_of(error)
        outcome.write(json.dumps(fault))


class _Watched:
    most_bytes = 0


def limit_memory(size: int) -> None:
    """Let this process map at most `size` bytes more, and write no core file.

    Beside Linux, which alone keeps such a limit, end it soon after it holds more.
    """
    process = psutil.Process()
    if sys.platform != "linux":
        is_watched = _Watched.most_bytes > 0
        _Watched.most_bytes = process.memory_info().rss + size
        if not is_watched:
            threading.Thread(target=_end_above_limit, args=(process,), daemon=True).start()
        return
    process.rlimit(psutil.RLIMIT_CORE, (0, 0))
    limit = process.memory_info().vms + min(size, psutil.virtual_memory().total)
    hard = process.rlimit(psutil.RLIMIT_AS)[1]
    if hard != psutil.RLIM_INFINITY:
        limit = min(limit, hard)
    process.rlimit(psutil.RLIMIT_AS, (limit, hard))  # may be raised again


def _end_above_limit(process: psutil.Process) -> None:
    while process.memory_info().rss <= _Watched.most_bytes:
        time.sleep(POLL_SECONDS)
    os._exit(EXIT_NO_MEMORY)


def fault_of_trial(path: Path, row: Format, threads: int) -> str:
    """Load a file and run it once; return the fault of its outputs, or ""."""
    for package in row.packages:
        import_optional(package, f"--weights {path}")
    if row.is_program:
        backend.use()
    allowed = BASE_BYTES + TIMES_FILE * size_of(path) + THREAD_BYTES * threads
    limit_memory(allowed)
    runtime = row.open(path, threads)
    images = example_images(runtime.metadata)
    limit_memory(allowed + TIMES_IMAGES * 4 * images.size)
    shapes = [output.shape for output in runtime(images)]
    return fault_of_returned(runtime.metadata, shapes, len(images))


def words_of(error: Exception) -> str:
    text = str(error)
    if isinstance(error, MemoryError) or "bad_alloc" in text or "buffer of size" in text:
        return f"it asks for more memory than files of its size need; {REMEDY}"
    if isinstance(error, OSError):
        return error.strerror or text
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {brief(text)}"


if __name__ == "__main__":
    main()
