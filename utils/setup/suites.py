"""Run the tests in the environment of every backend, all at the same time.

    python3 -m utils.setup.suites

It makes the environments first, as `utils/setup/environments.py` does. PYTEST_ARGS holds further
arguments of pytest. The first backend's output is shown as it comes, then the second's. OneFlow's
CPU kernels use one thread: on two cores both suites take little longer than the slower one alone.

Standard library only, and no syntax newer than Python 3.8: see `utils/setup/environments.py`.
"""

from __future__ import annotations

from utils.processes.interrupt import end_at_interrupt

if __name__ == "__main__":
    end_at_interrupt()  # while the others are imported

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from utils.files.project import PROJECT
from utils.setup.environments import end_with_message, prepare_all

POLL_SECONDS = 0.2


def run_suites(pythons: Mapping[str, Path], root: Path, environ: Mapping[str, str]) -> list[str]:
    """Run pytest under each interpreter and show the outputs one after the other.

    Args:
        pythons: interpreter by backend.
        root: folder to run in; the outputs are kept in .venv/<backend>-tests.log.
        environ: for the tests; PYTEST_ARGS holds further arguments of pytest.

    Returns:
        The backends for which pytest reported a failure or found no tests.
    """
    threads = str(max(1, len(os.sched_getaffinity(0)) // len(pythons)))
    environ = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **environ}
    arguments = shlex.split(environ.get("PYTEST_ARGS", ""))
    logs = {backend: root / ".venv" / f"{backend}-tests.log" for backend in pythons}
    running, failed = {}, []
    try:
        for backend, python in pythons.items():
            # Two runs must not share a cache.
            command = [str(python), "-m", "pytest", "-o", f"cache_dir=.pytest_cache/{backend}"]
            with logs[backend].open("wb") as stream:
                running[backend] = subprocess.Popen(
                    [*command, *arguments], stdout=stream, stderr=subprocess.STDOUT, cwd=root,
                    env={**environ, "YOLO_BACKEND": backend},
                )  # fmt: skip
        for backend, process in running.items():
            print(f"== {backend} ==", flush=True)
            if _follow(process, logs[backend]) != 0:
                failed.append(backend)
        return failed
    finally:
        for process in running.values():
            process.kill()  # does nothing to one that has ended
            process.wait()


def _follow(process: subprocess.Popen[bytes], log: Path) -> int:
    """Copy a log to the screen until the process that writes it ends; return its exit code."""
    with log.open("rb") as stream:
        while True:
            exit_code = process.poll()  # before reading, so its last output is read too
            sys.stdout.buffer.write(stream.read())
            sys.stdout.buffer.flush()
            if exit_code is not None:
                return exit_code
            time.sleep(POLL_SECONDS)


def main() -> None:
    """Make the environments and run their tests; exit code 1 where tests fail, 2 before them."""
    failed = run_suites(prepare_all([], PROJECT, os.environ), PROJECT, os.environ)
    if failed:
        print(f"tests failed on: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    end_with_message(main)
