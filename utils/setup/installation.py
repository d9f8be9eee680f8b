"""Install an environment into a folder: completely, or marked as not.

Before it: `utils/setup/environments.py` says which environment goes where. After it: the folder
holds a Python with every package of the lock file, and a stamp that says from which lock it was
made.

Standard library only, and no syntax newer than Python 3.8: see `utils/setup/environments.py`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from utils.errors import UserError
from utils.setup.interpreters import Interpreter, InterpreterFailedError, probe

STAMP = "duet-environment.json"
# Run inside a new environment. Both lines can be wrong after a pip that reports success: the
# version when pip takes a stub made for another Python, the import when a library is missing.
IMPORT_CHECK = (
    "import importlib, importlib.metadata, sys; "
    "print(importlib.metadata.version(sys.argv[1])); importlib.import_module(sys.argv[1])"
)
LOG_TAIL_LINES = 15


class SetupError(UserError):
    """An environment could not be made; the message names the step and what to do."""


def read_lock(path: Path) -> list[str]:
    """The requirement lines of a lock file and of those it includes, without comments.

    Args:
        path: of a pip requirements file; lines "-r F" and "-c F" are followed.
    """
    lines: list[str] = []
    for line in path.read_text().splitlines():
        content = line.partition("#")[0].strip()
        if content.startswith(("-r ", "-c ")):
            lines += read_lock(path.parent / content[3:])
        elif content:
            lines.append(content)
    return lines


def pinned_version(lock: Sequence[str], package: str) -> str:
    """The version that a lock pins a package to."""
    prefix = package + "=="
    return next(line[len(prefix) :] for line in lock if line.startswith(prefix))


def lock_hash(lock: Sequence[str]) -> str:
    """Hexadecimal digest that changes with any requirement, not with comments."""
    return hashlib.sha256("\n".join(lock).encode()).hexdigest()


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / "bin" / "python"


def is_ready(folder: Path, lock: Sequence[str]) -> bool:
    """Whether an environment was made completely, from this lock, and its Python still runs."""
    try:
        stamp = json.loads((folder / STAMP).read_text())
        interpreter = probe(str(python_of(folder)))
    except (FileNotFoundError, json.JSONDecodeError, InterpreterFailedError):
        return False
    return bool(stamp == _stamp(lock, interpreter))


def install(
    package: str, requirements: Path, interpreter: Interpreter, folder: Path, log: Path
) -> None:
    """Make an environment with every package of a lock file, replacing what the folder holds.

    Args:
        package: of the backend; must import, at the pinned version, once all is installed.
        requirements: the lock file.
        interpreter: that the environment is made of.
        folder: of the environment.
        log: file that takes the output of venv and pip.

    Raises:
        SetupError: a step failed; the folder is then left without a stamp.
    """
    lock = read_lock(requirements)
    python = str(python_of(folder))
    pip = [python, "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    remove(folder)
    with log.open("w") as stream:
        _run_logged([interpreter.path, "-m", "venv", str(folder)], log, stream.fileno())
        _run_logged([*pip, "-r", str(requirements)], log, stream.fileno())
    check_import(python, package, pinned_version(lock, package))
    unfinished = folder / (STAMP + ".unfinished")
    unfinished.write_text(json.dumps(_stamp(lock, interpreter)))
    unfinished.replace(folder / STAMP)


def remove(folder: Path) -> None:
    """Remove an environment, or only the link to one that other checkouts may use."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        (folder / STAMP).unlink(missing_ok=True)  # first: a removal cut short leaves nothing ready
        shutil.rmtree(folder)


def check_import(python: str, package: str, version: str) -> None:
    """Hold that an environment imports a package at a version; its output is kept off the screen.

    Raises:
        SetupError: another version is installed, or the import fails.
    """
    result = subprocess.run(
        [python, "-c", IMPORT_CHECK, package], capture_output=True, text=True, check=False
    )
    installed = result.stdout.partition("\n")[0]
    # A build may add a local part: "2.13.0+cpu".
    if installed and installed.partition("+")[0] != version:
        raise SetupError(
            f"{package}: pip installed version {installed}, needed is {version}. "
            f"Check which package index pip uses: pip config list"
        )
    if result.returncode != 0:
        raise SetupError(f"{package}: installed, but does not import:\n{_tail(result.stderr)}")


def _run_logged(command: list[str], log: Path, stream: int) -> None:
    result = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, check=False)
    if result.returncode != 0:
        raise SetupError(
            f"{' '.join(command)} failed with exit code {result.returncode}. "
            f"The end of {log}:\n{_tail(log.read_text(errors='replace'))}\n"
            f"Run the same command again once that is mended: it starts afresh."
        )


def _stamp(lock: Sequence[str], interpreter: Interpreter) -> dict[str, str]:
    return {"lock": lock_hash(lock), "python": interpreter.version}


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])
