"""An exported file -> the runtime that runs it; a file of others is tried in a child process first.

A runtime trusts a file: a graph may ask for terabytes, loop for hours, or crash the process. So a
file that this program did not just write is first run in a child with limits of memory and time, in
the shape of the images that it will get; only then it is loaded in the process that needs it.

    python -m utils.export.opening PATH FORMAT THREADS SECONDS

Standard input has the shapes to run, standard output the outcomes: a line of JSON each.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np

import backend
from utils.errors import UserError, brief
from utils.export.formats import FORMATS, Format, find_format, format_named, size_of
from utils.export.metadata import Outputs, Runtime, example_images, fault_of_returned, noise
from utils.json_files import parse_json
from utils.optional import import_optional
from utils.project import PROJECT

MODULE = "utils.export.opening"
SECONDS = 120  # for loading a file, and for each run
# What a file may take beside the runtime's own libraries: all maps of a yolov5x together have 320
# bytes per byte of its images, and OpenVINO holds weights several times while it compiles them.
BASE_BYTES, TIMES_FILE, TIMES_IMAGES, THREAD_BYTES = 2 << 30, 8, 320, 256 << 20
REMEDY = "the file is damaged, hostile or too large for this machine; export it again"


def open_runtime(
    path: str | Path, threads: int | None = None, runtime: str = "", is_trusted: bool = False
) -> Runtime:
    """Load an exported file.

    Args:
        threads: of the CPU, to run it with; None: the runtime's own choice.
        runtime: the format whose runtime is to run it; "" for that of the file.
        is_trusted: this program has just written it; any other one is tried in a child first.

    Raises:
        UserError: no such file, not a known format, damaged, or its runtime is not installed; a
            crash, a hang or too much memory in the child.
    """
    path = Path(path)
    row = format_to_run(path, runtime)
    if not path.exists():
        raise UserError(f"--weights {path}: no such file")
    try:
        if is_trusted or not row.is_tried:
            return row.open(path, threads)
        return TriedRuntime(path, row, threads)
    except UserError as error:
        text = str(error)
        raise UserError(text if "--weights" in text else f"--weights {path}: {text}") from error
    except MemoryError as error:
        raise UserError(f"--weights {path}: it does not fit into memory") from error
    except OSError as error:
        raise UserError(f"--weights {path}: {error.strerror or error}") from error


def format_to_run(path: Path, name: str = "") -> Format:
    """Return the format whose runtime runs a file: what --runtime names, else the file's own.

    Raises:
        UserError: it does not read the file; or as `find_format`.
    """
    if not name:
        return find_format(path)
    able = {row.name: row for row in FORMATS if row.can_read(path)}
    if name not in able:
        fit = ", ".join(able)
        raise UserError(f"--runtime {name} does not read --weights {path}; accepted: {fit}")
    return able[name]


class TriedRuntime:
    """A runtime whose file is tried in a child first, with each shape of images that it gets.

    The child of a dynamic file waits for further shapes; it ends when this object goes.
    """

    def __init__(self, path: Path, row: Format, threads: int | None) -> None:
        """Load a file; UserError if it fails in the child."""
        words = path.absolute(), row.name, threads or 0, SECONDS
        self._command = [sys.executable, "-m", MODULE, *map(str, words)]
        self._start_child()
        self._runtime: Runtime = row.open(path, threads)
        self.metadata, self.name = self._runtime.metadata, self._runtime.name
        self._shapes = {example_images(self.metadata).shape}
        self._turn = threading.Lock()
        if not self.metadata.dynamic:
            self._end_child()

    def __call__(self, images: np.ndarray) -> Outputs:
        with self._turn:
            if images.shape not in self._shapes:
                if self._child.poll() is not None:
                    self._start_child()
                assert self._child.stdin is not None, "it is a pipe"
                with suppress(BrokenPipeError):
                    write_line(self._child.stdin, list(images.shape))
                self._require_success()
                self._shapes.add(images.shape)
        return self._runtime(images)

    def _start_child(self) -> None:
        self._child = subprocess.Popen(
            self._command, cwd=PROJECT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._end_child = weakref.finalize(self, end, self._child)
        self._require_success()

    def _require_success(self) -> None:
        """Wait for an outcome; after any but success the child has ended."""
        assert self._child.stdout is not None, "it is a pipe"
        fault = None
        try:
            line = self._child.stdout.readline()
            fault = parse_json(line) if line else reason_of_end(self._child.wait())
        finally:  # after Ctrl-C too
            if fault != "":
                self._end_child()
        if fault:
            raise UserError(fault)


def end(child: subprocess.Popen[str]) -> None:
    """End a child at once."""
    child.kill()
    child.communicate()


def reason_of_end(code: int) -> str:
    """Return why a child ended without an outcome."""
    name = signal.Signals(-code).name if code < 0 else f"status {code}"
    reasons = {
        "SIGALRM": f"it has not ended after {SECONDS} s",
        "SIGKILL": "it was killed, as when memory runs out",
    }
    reason = reasons.get(name, f"it crashed ({name})")
    return f"its trial run failed: {reason}; {REMEDY}"


# In the child.


def main() -> None:
    path, name, threads, seconds = sys.argv[1:]
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as outcomes:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries may write there
        try:
            for fault in faults(Path(path), format_named(name), int(threads), int(seconds)):
                write_line(outcomes, fault)
        except Exception as error:  # of libraries, with classes of their own
            write_line(outcomes, words_of(error))


def faults(path: Path, row: Format, threads: int, seconds: int) -> Iterator[str]:
    """Load and run a file, then run it for each line of standard input.

    SIGALRM ends the process if loading or a run takes longer than `seconds`.

    Yields:
        What is wrong with what the file returned; "" if nothing is.
    """
    for package in row.packages:
        import_optional(package, f"--weights {path}")
    if row.is_program:
        backend.use()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a parent may have it ignored or blocked
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    threads = threads or os.cpu_count() or 1
    allowed = BASE_BYTES + TIMES_FILE * size_of(path) + THREAD_BYTES * threads
    limit_memory(allowed)
    signal.alarm(seconds)
    runtime = row.open(path, threads)
    images = example_images(runtime.metadata)
    while True:
        limit_memory(allowed + TIMES_IMAGES * 4 * images.size)
        signal.alarm(seconds)
        shapes = [output.shape for output in runtime(images)]
        signal.alarm(0)
        yield fault_of_returned(runtime.metadata, shapes, len(images) if images.ndim == 4 else 1)
        line = sys.stdin.readline()
        if not line:
            return
        images = noise(parse_json(line))


def limit_memory(size: int) -> None:
    """Let this process map so many bytes more than now, but no more than the machine has."""
    if sys.platform != "linux":
        return
    page = os.sysconf("SC_PAGE_SIZE")
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * page
    limit = mapped + min(size, os.sysconf("SC_PHYS_PAGES") * page)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))  # may be raised again


def words_of(error: Exception) -> str:
    """Return what a failure means for a user."""
    text = str(error)
    if isinstance(error, MemoryError) or "bad_alloc" in text or "buffer of size" in text:
        return f"it asks for more memory than files of its size need; {REMEDY}"
    if isinstance(error, OSError):
        return error.strerror or text
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {brief(text)}"


def write_line(file: IO[str], value: object) -> None:
    """Write a value as a line of JSON, at once."""
    file.write(json.dumps(value) + "\n")
    file.flush()


if __name__ == "__main__":
    main()
