"""What a machine may lack: another environment, and large test data kept elsewhere.

And waits for what other processes do, and for their end. No framework is imported here.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from duet.utils.project import PROJECT

BACKENDS = ("torch", "oneflow")
collecting = False  # set by conftest.py
NO_SITE = "no environment for the site: make docs"
END = "=== it ended\n"
# Runs commands one after the other, as far as they end well.
SEVERAL = f"""
import json, runpy, sys
for words in json.loads(sys.argv[1]):
    sys.argv = ["duet", *words]
    try:
        runpy.run_module("duet", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    print({END!r}, end="")
"""


def python_of(backend: str) -> Path:
    """The interpreter of a backend's environment; without one the test is skipped.

    It fails instead when REQUIRE_BACKENDS names the backend.
    """
    python = PROJECT / ".venv" / backend / "bin" / "python"
    if not python.exists():
        message = f"no environment for {backend}: make setup BACKEND={backend}"
        if backend in os.environ.get("REQUIRE_BACKENDS", "").split():
            pytest.fail(message)
        pytest.skip(message)
    return python


def docs_python() -> Path:
    """The interpreter of .venv/docs; without it the test is skipped.

    It fails instead where REQUIRE_DOCS=1.
    """
    python = PROJECT / ".venv" / "docs" / "bin" / "python"
    if not python.exists():
        if os.environ.get("REQUIRE_DOCS") == "1":
            pytest.fail(NO_SITE)
        pytest.skip(NO_SITE)
    return python


def build_site(project: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a project's folder into target, as `make docs` does."""
    return subprocess.run(
        [docs_python(), "-B", "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=project,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def shared_folder() -> Path:
    """The folder that SHARED_DIR names, else `shared` beside the repository; it may be absent."""
    return Path(os.environ.get("SHARED_DIR") or PROJECT.parent / "shared")


def shared_path(relative: str) -> Path:
    """The path of a shared file or folder.

    Without it the test is skipped, or fails where REQUIRE_SHARED=1. A clone without these files
    collects every test: while it does, none may ask for them.
    """
    assert not collecting, f"{relative} is asked for while tests are collected"
    path = shared_folder() / relative
    if not path.exists():
        message = f"{path} is absent; SHARED_DIR names the folder that holds {relative}"
        if os.environ.get("REQUIRE_SHARED") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return path


def run_python(backend: str, *arguments: object, timeout: float = 300) -> str:
    """Run a script or module of this project under a backend; returns what it printed.

    An exit code other than 0 fails the test with everything that was printed.
    """
    command = [str(python_of(backend)), *map(str, arguments)]
    environment = {**os.environ, "YOLO_BACKEND": backend}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def python(
    *words: object, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run this Python in the project's folder, with further variables."""
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=PROJECT, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def run_several(backend: str, *commands: Sequence[object]) -> list[str]:
    """Run commands of duet in one process of a backend; return their outputs."""
    lines = json.dumps([list(map(str, words)) for words in commands])
    return run_python(backend, "-c", SEVERAL, lines).split(END)[:-1]


SECONDS = 120.0  # far more than a process needs to begin or end


def wait_until(is_so: Callable[[], object], process: subprocess.Popen[Any] | None = None) -> None:
    """Wait until something is so; a process, if given, must not end before."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_ended(process: int | str) -> bool:
    """Whether a process is gone, or only its parent has yet to ask for its status."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"
