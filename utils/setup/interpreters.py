"""Find a Python that can hold a backend's environment, wherever a user may have one.

Runs before anything is installed, on whatever `python3` the machine has: standard library only,
and no syntax newer than Python 3.8.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from utils.errors import UserError

# Prints before the last two imports, so that a Python without them still says which one it is.
# The real path, because `path` may be a shim, or belong to an environment about to be replaced.
PROBE = (
    "import os, sys; print('%d.%d.%d' % sys.version_info[:3]); "
    "print(os.path.realpath(sys.executable)); import ensurepip, venv"
)
PROBE_SECONDS = 30


class Interpreter(NamedTuple):
    """A Python that runs."""

    path: str  # of the installation itself: no shim, no virtual environment
    version: str  # "3.10.13"
    makes_environments: bool  # has venv and ensurepip

    @property
    def minor_version(self) -> str:
        """As "3.10"."""
        return self.version.rpartition(".")[0]


class InterpreterFailedError(ValueError):
    """A file that should be a Python does not run as one."""


class NoInterpreterError(UserError):
    """No usable Python was found; the message lists what was looked at and the remedy."""


def probe(path: str) -> Interpreter:
    """Run a candidate and ask what it is: a file of the right name may be a shim that fails.

    Raises:
        InterpreterFailedError: it does not run, or does not answer as a Python would.
    """
    try:
        result = _run([path, "-c", PROBE], timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InterpreterFailedError(f"does not run: {error}") from error
    answer = result.stdout.splitlines()
    if len(answer) != 2:
        raise InterpreterFailedError(f"does not run: {_first_line(result.stderr)}")
    return Interpreter(answer[1], answer[0], makes_environments=result.returncode == 0)


def find_interpreter(minor_versions: Sequence[str], environ: Mapping[str, str]) -> Interpreter:
    """The first usable Python: the running one, then PATH, then pyenv's, then uv's.

    Args:
        minor_versions: accepted, as "3.10", the preferred one first.
        environ: PATH, HOME and PYENV_ROOT are read.

    Raises:
        NoInterpreterError: none is usable.
    """
    refused: dict[str, str] = {}
    for path in candidates(minor_versions, environ):
        if path in refused:
            continue
        try:
            interpreter = probe(path)
        except InterpreterFailedError as error:
            refused[path] = str(error)
            continue
        reason = _reason_against(interpreter, minor_versions)
        if reason is None:
            return interpreter
        refused[path] = reason
    looked_at = "".join(f"\n  {path} {reason}" for path, reason in refused.items())
    raise NoInterpreterError(
        f"no usable Python {' or '.join(minor_versions)} on PATH, in pyenv or through uv. "
        f"Looked at:{looked_at}\n"
        f"  To add one: `pyenv install {minor_versions[0]}`, `uv python install "
        f"{minor_versions[0]}`, or your system's package; then run the same command again."
    )


def _reason_against(interpreter: Interpreter, minor_versions: Sequence[str]) -> str | None:
    if interpreter.minor_version not in minor_versions:
        return f"is Python {interpreter.version}"
    if not interpreter.makes_environments:
        package = f"python{interpreter.minor_version}-venv"
        return f"lacks venv or ensurepip; on Debian and Ubuntu: apt install {package}"
    return None


def candidates(minor_versions: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Paths worth probing, best first; lazy, because uv is asked only when nothing else fits."""
    yield sys.executable
    for name in ["python3", *(f"python{version}" for version in minor_versions)]:
        yield from _on_path(name, environ)
    for version in minor_versions:
        yield from _in_pyenv(version, environ)
    yield from _through_uv(minor_versions, environ)


def _on_path(name: str, environ: Mapping[str, str]) -> Iterator[str]:
    # All of PATH, not the first hit: a pyenv shim that fails may hide a Python that works.
    for folder in environ.get("PATH", "").split(os.pathsep):
        found = shutil.which(name, path=folder) if folder else None
        if found:
            yield found


def _in_pyenv(minor_version: str, environ: Mapping[str, str]) -> Iterator[str]:
    home = environ.get("HOME", "")
    root = Path(environ.get("PYENV_ROOT") or Path(home, ".pyenv"))
    found = root.glob(f"versions/{minor_version}*/bin/python")
    yield from sorted((str(path) for path in found), reverse=True)


def _through_uv(minor_versions: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    uv = shutil.which("uv", path=environ.get("PATH", ""))
    if uv is None or _run([uv, "--version"]).returncode != 0:  # a pyenv shim may fail here too
        return
    for version in minor_versions:
        yield from _uv_find(uv, version)
    print(f"uv: installing Python {minor_versions[0]}", flush=True)
    result = _run([uv, "python", "install", minor_versions[0]])
    if result.returncode != 0:
        print(f"uv: that failed: {_first_line(result.stderr)}", flush=True)
    yield from _uv_find(uv, minor_versions[0])


def _uv_find(uv: str, minor_version: str) -> Iterator[str]:
    result = _run([uv, "python", "find", minor_version])
    if result.returncode == 0:
        yield result.stdout.strip()


def _run(command: list[str], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "no output")
