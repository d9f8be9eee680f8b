"""A child process that loads an exported file and runs it, with limits of memory and time.

A runtime trusts a file: a graph may ask for terabytes, loop for hours, or crash the process. So a
file that this program did not just write is first tried here, in the shape of the images that it
will get; only then it is loaded in the process that needs it.

    python -m utils.export.trial PATH FORMAT THREADS

Standard input has the shapes to run, standard output the outcomes: a line of JSON each.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np

import backend
from utils.errors import UserError, brief
from utils.export.formats import Format, format_named, size_of
from utils.export.outputs import Outputs, Runtime, example_images, fault_of_returned, noise
from utils.files.json import parse_json
from utils.files.project import PROJECT
from utils.optional import import_optional

MODULE = "utils.export.trial"
SECONDS = 120  # for loading a file, or a run
# What a file may take beside the runtime's own libraries: all maps of a yolov5x together have 320
# bytes per byte of its images, and OpenVINO holds weights several times while it compiles them.
BASE_BYTES, TIMES_FILE, TIMES_IMAGES, THREAD_BYTES = 2 << 30, 8, 320, 256 << 20
ENDINGS = {
    "SIGXCPU": f"it has not ended after {SECONDS} s",
    "SIGKILL": "it was killed, as when memory runs out",
}
REMEDY = "the file is damaged, hostile or too large for this machine; export it again"


class TriedRuntime:
    """A runtime whose file is tried in a child first, with each shape of images that it gets."""

    def __init__(self, path: Path, row: Format, threads: int | None) -> None:
        """Load a file; UserError if it fails in the child."""
        self._trial = Trial(path, row, threads)
        self._runtime: Runtime = row.open(path, threads)
        self.metadata, self.name = self._runtime.metadata, self._runtime.name
        self._shapes = {example_images(self.metadata).shape}
        self._turn = threading.Lock()
        if not self.metadata.dynamic:
            self._trial.close()

    def __call__(self, images: np.ndarray) -> Outputs:
        with self._turn:
            if images.shape not in self._shapes:
                self._trial.run(images.shape)
                self._shapes.add(images.shape)
        return self._runtime(images)


class Trial:
    """The child: it ends when this object goes, or with this process."""

    def __init__(self, path: Path, row: Format, threads: int | None) -> None:
        """Have the file loaded and run once; UserError says what was wrong."""
        self._command = [
            sys.executable, "-m", MODULE, str(path.absolute()), row.name, str(threads or 0)
        ]  # fmt: skip
        self._start()

    def run(self, shape: Sequence[int]) -> None:
        """Run the file on noise of a shape; UserError if it fails."""
        if self._process.poll() is not None:
            self._start()
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):
            write_line(self._process.stdin, list(shape))
        self._wait()

    def close(self) -> None:
        self._end()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, cwd=PROJECT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._end = weakref.finalize(self, end, self._process)
        self._wait()

    def _wait(self) -> None:
        """Wait for an outcome."""
        outcomes = self._process.stdout
        assert outcomes is not None, "it is a pipe"
        try:
            is_there = bool(select.select([outcomes], [], [], SECONDS)[0])
            line = outcomes.readline() if is_there else ""
        except BaseException:  # Ctrl-C
            self.close()
            raise
        if line and not (fault := parse_json(line)):
            return
        if line:
            self.close()
            raise UserError(fault)
        if not is_there:
            self.close()
            raise UserError(f"its trial run failed: {ENDINGS['SIGXCPU']}; {REMEDY}")
        code = self._process.wait()
        self.close()
        name = signal.Signals(-code).name if code < 0 else f"status {code}"
        raise UserError(
            f"its trial run failed: {ENDINGS.get(name, f'it crashed ({name})')}; {REMEDY}"
        )


def end(process: subprocess.Popen[str]) -> None:
    """End a child at once."""
    process.kill()
    process.communicate()


def write_line(file: IO[str], value: object) -> None:
    """Write a value as a line of JSON, at once."""
    file.write(json.dumps(value) + "\n")
    file.flush()


# In the child.


def main() -> None:
    path, name, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as outcomes:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries may write there
        try:
            for fault in faults(path, format_named(name), threads):
                write_line(outcomes, fault)
        except Exception as error:  # of libraries, with classes of their own
            write_line(outcomes, words_of(error))


def faults(path: Path, row: Format, threads: int) -> Iterator[str]:
    """Load and run a file, then run it for each line of standard input.

    Yields:
        What is wrong with what the file returned; "" if nothing is.
    """
    for package in row.packages:
        import_optional(package, f"--weights {path}")
    if row.is_program:
        backend.use()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threads = threads or os.cpu_count() or 1
    allowed = BASE_BYTES + TIMES_FILE * size_of(path) + THREAD_BYTES * threads
    limit_memory(allowed)
    limit_time(threads)
    runtime = row.open(path, threads)
    images = example_images(runtime.metadata)
    while True:
        limit_memory(allowed + TIMES_IMAGES * 4 * images.size)
        limit_time(threads)
        shapes = [output.shape for output in runtime(images)]
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
    _limit(resource.RLIMIT_AS, mapped + min(size, os.sysconf("SC_PHYS_PAGES") * page))


def limit_time(threads: int) -> None:
    """Let this process compute for `SECONDS` more on its threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime) + SECONDS * threads)


def _limit(kind: int, value: int) -> None:
    """Set a soft limit, no higher than the hard one; it may be raised again."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def words_of(error: Exception) -> str:
    """Return what a failure means for a user."""
    text = str(error)
    if isinstance(error, MemoryError) or "bad_alloc" in text or "buffer of size" in text:
        return f"it asks for more memory than files of its size need; {REMEDY}"
    if isinstance(error, OSError):
        return error.strerror or text
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {brief(text)}"


if __name__ == "__main__":
    main()
