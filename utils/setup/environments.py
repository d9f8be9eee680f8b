"""Make the Python environment of each backend: .venv/torch and .venv/oneflow.

    python3 -m utils.setup.environments [torch] [oneflow]

Backends that are named must succeed. Without names both are made, and OneFlow is left out where
it cannot be had, unless REQUIRE_BACKENDS names it. With DUET_ENVIRONMENT_CACHE set, the
environments live in that folder and .venv holds links to them.

Runs before anything is installed, on whatever `python3` the machine has: standard library only,
and no syntax newer than Python 3.8.
"""

from __future__ import annotations

import fcntl
import os
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from utils.errors import UserError
from utils.files.project import PROJECT
from utils.setup.installation import (
    SetupError,
    install,
    is_ready,
    lock_hash,
    python_of,
    read_lock,
    remove,
)
from utils.setup.interpreters import Interpreter, NoInterpreterError, find_interpreter


class UnsupportedPlatformError(UserError):
    """A backend has no packages for this machine."""


@dataclass(frozen=True)
class Environment:
    """What a backend's environment needs.

    Attributes:
        backend: name of the backend, of its package and of its lock file.
        minor_versions: of Python, as "3.10", the preferred one first.
        platform: the only one it has packages for, as sysconfig names it; None for any.
        optional: left out, with a message, where it cannot be had.
    """

    backend: str
    minor_versions: tuple[str, ...]
    platform: str | None
    optional: bool


ENVIRONMENTS = {
    "torch": Environment("torch", ("3.13", "3.12", "3.11", "3.10"), platform=None, optional=False),
    # OneFlow 0.9.0 has wheels up to Python 3.10, and this project's syntax is that of 3.10.
    "oneflow": Environment("oneflow", ("3.10",), platform="linux-x86_64", optional=True),
}


def prepare_all(names: Sequence[str], root: Path, environ: Mapping[str, str]) -> dict[str, Path]:
    """Make environments ready; do nothing for those that are.

    Args:
        names: backends that must succeed; when empty all are made, optional ones if possible.
        root: folder that holds requirements/ and .venv/.
        environ: REQUIRE_BACKENDS names more backends that must succeed; see `prepare` for others.

    Returns:
        Interpreter by backend, of those that are ready.

    Raises:
        SetupError: a backend is unknown, or one that must succeed did not.
    """
    required = {*names, *environ.get("REQUIRE_BACKENDS", "").split()}
    for name in sorted(required - ENVIRONMENTS.keys()):
        raise SetupError(f"unknown backend {name!r}; known are {', '.join(ENVIRONMENTS)}")
    ready = {}
    for name in names or ENVIRONMENTS:
        environment = ENVIRONMENTS[name]
        try:
            ready[name] = prepare(environment, root, environ)
        except (NoInterpreterError, UnsupportedPlatformError) as error:
            if name in required or not environment.optional:
                raise SetupError(f"{name}: {error}") from error
            print(f"{name}: left out: {error}", flush=True)
    return ready


def prepare(environment: Environment, root: Path, environ: Mapping[str, str]) -> Path:
    """Make .venv/<backend> ready; do nothing where it is.

    Args:
        environment: to make.
        root: folder that holds requirements/ and .venv/.
        environ: DUET_ENVIRONMENT_CACHE, and what the search for a Python reads.

    Returns:
        The environment's interpreter.

    Raises:
        NoInterpreterError, UnsupportedPlatformError: it cannot be had on this machine.
        SetupError: installing failed.
    """
    folder = root / ".venv" / environment.backend
    requirements = root / "requirements" / f"{environment.backend}.txt"
    lock = read_lock(requirements)
    if is_ready(folder, lock):
        return python_of(folder)
    if environment.platform not in (None, sysconfig.get_platform()):
        raise UnsupportedPlatformError(
            f"it has packages for {environment.platform} only, this is {sysconfig.get_platform()}"
        )
    interpreter = find_interpreter(environment.minor_versions, environ)
    cache = environ.get("DUET_ENVIRONMENT_CACHE")
    if not cache:
        _install_once(environment.backend, requirements, interpreter, folder)
        return python_of(folder)
    name = f"{environment.backend}-{interpreter.version}-{lock_hash(lock)[:16]}"
    cached_folder = Path(cache).resolve() / name
    _install_once(environment.backend, requirements, interpreter, cached_folder)
    _link(folder, cached_folder)
    return python_of(folder)


def _install_once(backend: str, requirements: Path, interpreter: Interpreter, folder: Path) -> None:
    """Install unless another command has done so, or is doing so now."""
    log = folder.with_name(folder.name + ".log")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock_stream:
        _wait_for(lock_stream, backend)
        if is_ready(folder, read_lock(requirements)):
            return
        details = f"Python {interpreter.version}, output in the .log file beside it"
        with _timed(f"{backend}: installing into {folder} ({details})"):
            install(backend, requirements, interpreter, folder, log)


def _wait_for(lock_stream: TextIO, backend: str) -> None:
    try:
        fcntl.flock(lock_stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"{backend}: waiting for another command that is installing it", flush=True)
        fcntl.flock(lock_stream, fcntl.LOCK_EX)


def _link(link: Path, folder: Path) -> None:
    remove(link)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(folder, target_is_directory=True)


@contextmanager
def _timed(task: str) -> Iterator[None]:
    start = time.monotonic()
    print(f"{task} ... ", end="", flush=True)
    outcome = "failed"
    try:
        yield
        outcome = f"{time.monotonic() - start:.0f} s"
    finally:
        print(outcome, flush=True)


def main() -> None:
    """Make the environments that the command line names."""
    try:
        prepare_all(sys.argv[1:], PROJECT, os.environ)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: the same command starts the installation afresh", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
