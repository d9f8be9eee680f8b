"""Run the tests in the environment of every backend, all at the same time.

    python3 -m utils.setup.suites

It makes the environments first, as `utils/setup/environments.py` does. PYTEST_ARGS holds further
arguments of pytest. A line says how far both are; their outputs follow when both have ended, and
stay in .venv/BACKEND-tests.log. OneFlow's CPU kernels use one thread: on two cores both suites take
little longer than the slower one by itself.

Standard library only, and no syntax newer than Python 3.8: see `utils/setup/environments.py`.
"""

from __future__ import annotations

from utils.processes.interrupt import end_at_interrupt

if __name__ == "__main__":
    end_at_interrupt()  # while the others are imported

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from utils.files.project import PROJECT
from utils.screen.state_line import StateLine
from utils.screen.words import clock
from utils.setup.environments import end_with_message, prepare_all

# Tells the tests that the other suite runs too: see `tests/one_suite.py`.
SIDE_BY_SIDE = "TESTS_SIDE_BY_SIDE"
PERCENT = re.compile(r"\[ *(\d+)%\]\s*$", re.MULTILINE)  # as pytest ends a line


def run_suites(pythons: Mapping[str, Path], root: Path, environ: Mapping[str, str]) -> list[str]:
    """Run pytest under each interpreter, then show the outputs one after the other.

    Args:
        pythons: interpreter by backend.
        root: folder to run in; the outputs are kept in .venv/<backend>-tests.log.
        environ: for the tests; PYTEST_ARGS holds further arguments of pytest.

    Returns:
        The backends for which pytest reported a failure or found no tests.
    """
    threads = str(max(1, len(os.sched_getaffinity(0)) // len(pythons)))
    environ = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **environ}
    if len(pythons) > 1:
        environ[SIDE_BY_SIDE] = "1"
    environ["PYTHONDONTWRITEBYTECODE"] = ""  # hundreds of processes would compile every module
    logs = {backend: root / ".venv" / f"{backend}-tests.log" for backend in pythons}
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for backend, python in pythons.items():
            # Two runs must not share a cache.
            command = [str(python), "-m", "pytest", "-o", f"cache_dir=.pytest_cache/{backend}"]
            with logs[backend].open("wb") as stream:
                running[backend] = subprocess.Popen(
                    [*command, *shlex.split(environ.get("PYTEST_ARGS", ""))],
                    stdout=stream, stderr=subprocess.STDOUT, cwd=root,
                    env={**environ, "YOLO_BACKEND": backend},
                )  # fmt: skip
        with StateLine() as line:
            while any([process.poll() is None for process in running.values()]):  # each of them
                line.tell(state_of(logs, line.seconds()))
                time.sleep(0.2)
    finally:
        for process in running.values():
            process.kill()  # does nothing to one that has ended
            process.wait()
    for backend, log in logs.items():
        print(f"== {backend} ==\n{log.read_text(errors='replace')}", end="", flush=True)
    return [backend for backend, process in running.items() if process.returncode != 0]


def state_of(logs: Mapping[str, Path], seconds: float) -> str:
    """Return how far the suites are, from what pytest has printed."""
    found = {name: PERCENT.findall(log.read_text(errors="replace")) for name, log in logs.items()}
    done = [f"{name} {percents[-1] if percents else 0} %" for name, percents in found.items()]
    return f"tests: {', '.join(done)}; {clock(seconds)}"


def main() -> None:
    """Make the environments and run their tests; exit code 1 where tests fail, 2 before them."""
    print("both suites at once, their output when they have ended: 15 to 20 minutes", flush=True)
    failed = run_suites(prepare_all([], PROJECT, os.environ), PROJECT, os.environ)
    if failed:
        print(f"tests failed on: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(__doc__)
    end_with_message(main)
