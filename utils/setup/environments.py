"""Make the Python environment of each backend, .venv/torch and .venv/oneflow, and .venv/docs.

    python3 -m utils.setup.environments [torch] [oneflow] [docs]

Those that are named must succeed; .venv/docs builds the site. Without names those of both backends
are made, and OneFlow is left out if it cannot be installed, unless REQUIRE_BACKENDS names it.
With DUET_ENVIRONMENT_CACHE set, the environments are in that folder and .venv holds links to them.

It uses venv and pip, not uv: pip's configuration chooses the CUDA build or the CPU build of torch
and names the mirrors, and uv does not read it. TORCH=cuda or TORCH=cpu asks for one of the two.
Every wheel must have one of the hashes in the locks, which `lock.py` writes.

It runs before anything is installed, on any `python3` of the machine: standard library only, and no
syntax newer than Python 3.8.
"""

from __future__ import annotations

from utils.processes.interrupt import end_at_interrupt, raise_at_interrupt

if __name__ == "__main__":
    end_at_interrupt()  # while the others are imported

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from utils.errors import UserError
from utils.files.project import PROJECT
from utils.screen.state_line import StateLine
from utils.screen.words import clock
from utils.setup.driver import newest_cuda
from utils.setup.interpreters import (
    NoPythonError,
    Python,
    UnfitPythonError,
    find_python,
    probe,
)
from utils.setup.pip_output import PipOutput

STAMP = "duet-environment.json"
BUILDS = ("cpu", "cuda")  # of torch
CUDA = (13, 0)  # of the CUDA build
# What `pip check` says about `requirements/optional.in`, whose header says why.
KNOWN_GAPS = re.compile(
    r"trackers \S+ (requires opencv-python, which is not installed\.|has requirement numpy.*)"
)
LOG_TAIL_LINES = 15
POLL_SECONDS = 0.2


class Environment(NamedTuple):
    """What an environment needs.

    Attributes:
        minor_versions: of Python, as "3.10", the preferred one first.
        platform: the only one it has packages for, as sysconfig names it; None for any.
        module: that it must be able to import.
    """

    minor_versions: tuple[str, ...]
    platform: str | None
    module: str


BACKENDS = {
    "torch": Environment(("3.13", "3.12", "3.11", "3.10"), platform=None, module="torch"),
    # OneFlow 0.9.0 has wheels up to Python 3.10, and this project's syntax is that of 3.10.
    "oneflow": Environment(("3.10",), platform="linux-x86_64", module="oneflow"),
}
ENVIRONMENTS = {
    **BACKENDS,
    "docs": Environment(("3.13", "3.12", "3.11"), platform=None, module="mkdocs"),
}


def prepare_all(names: Sequence[str], root: Path, environ: Mapping[str, str]) -> dict[str, Path]:
    """Make environments ready; do nothing for those that are ready.

    Args:
        names: environments that must succeed; if empty, those of all backends that this machine
            can have are made.
        root: folder that holds requirements/ and .venv/.
        environ: REQUIRE_BACKENDS names more backends that must succeed; see `prepare` for others.

    Returns:
        The interpreter of each environment that is ready.

    Raises:
        UserError: a name is unknown, a required one failed, or all failed. The message names
            the step and what to do.
    """
    required = {*names, *environ.get("REQUIRE_BACKENDS", "").split()}
    for name in sorted(required - ENVIRONMENTS.keys()):
        raise UserError(f"unknown environment {name!r}; known are {', '.join(ENVIRONMENTS)}")
    ready, missing = {}, {}
    for name in names or BACKENDS:
        try:
            ready[name] = prepare(name, root, environ)
        except NoPythonError as error:
            missing[name] = error
    if not ready or required & missing.keys():
        raise UserError("\n".join(f"{name}: {reason}" for name, reason in missing.items()))
    for name, reason in missing.items():
        print(f"{name}: left out: {reason}", flush=True)
    return ready


def prepare(name: str, root: Path, environ: Mapping[str, str]) -> Path:
    """Make .venv/<name> ready, unless it is, and return its interpreter.

    Args:
        name: of the environment; its requirements/<name>.txt is installed.
        root: folder that holds requirements/ and .venv/.
        environ: DUET_ENVIRONMENT_CACHE, TORCH, and what the search for a Python reads.

    Raises:
        NoPythonError: this machine cannot have the environment.
        UserError: installing failed, or TORCH names no build.
    """
    needs, folder = ENVIRONMENTS[name], root / ".venv" / name
    lock = root / "requirements" / f"{name}.txt"
    build = environ.get("TORCH", "") if name == "torch" else ""
    if build not in ("", *BUILDS):
        raise UserError(f"TORCH={build}; {' or '.join(BUILDS)} is accepted")
    if build == "cuda" and not sysconfig.get_platform().startswith("linux"):
        raise UserError("TORCH=cuda; torch has a CUDA build for Linux only: leave TORCH out")
    if is_ready(name, lock, folder, build):
        return python_of(folder)
    if needs.platform not in (None, sysconfig.get_platform()):
        raise NoPythonError(
            f"it has packages for {needs.platform} only, this is {sysconfig.get_platform()}"
        )
    python = find_python(needs.minor_versions, environ)
    cache = environ.get("DUET_ENVIRONMENT_CACHE")
    if not cache:
        _install_once(name, lock, python, folder, build)
        return python_of(folder)
    kept = Path(cache).resolve() / f"{name}{build}-{python.version}-{lock_digest(lock)[:16]}"
    _install_once(name, lock, python, kept, build)
    remove(folder)
    folder.parent.mkdir(exist_ok=True)
    folder.symlink_to(kept, target_is_directory=True)
    return python_of(folder)


def python_of(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    return folder / "bin" / "python"


def read_lock(path: Path) -> list[str]:
    """Return the lines of a lock file without comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def lock_digest(lock: Path) -> str:
    """Return a hexadecimal digest of an environment's locks; comments do not change it."""
    paths = [lock, *sorted(lock.parent.glob(f"{lock.stem}-*.txt"))]
    lines = [line for path in paths for line in read_lock(path)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def is_ready(name: str, lock: Path, folder: Path, build: str = "") -> bool:
    """Return whether an environment is complete, made from this lock, and its Python runs.

    Args:
        build: of torch that it must have; "" for any.
    """
    try:
        python = probe(str(python_of(folder)), ENVIRONMENTS[name].minor_versions)
        stamp = (folder / STAMP).read_text()
    except (OSError, UnfitPythonError):
        return False
    return stamp in [_stamp(lock, python, held) for held in ([build] if build else ["", *BUILDS])]


def _stamp(lock: Path, python: Python, build: str) -> str:
    return json.dumps({"lock": lock_digest(lock), "python": python.version, "build": build})


def remove(folder: Path) -> None:
    """Remove an environment, or only the link to it: other checkouts may use it."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        (folder / STAMP).unlink(missing_ok=True)  # first: after half a removal it is not ready
        shutil.rmtree(folder)


def _install_once(name: str, lock: Path, python: Python, folder: Path, build: str) -> None:
    """Install into a folder, unless another command has done it or is doing it now."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{name}: waiting for another command that is installing it", flush=True)
            fcntl.flock(stream, fcntl.LOCK_EX)
        if not is_ready(name, lock, folder, build):
            build = _install(name, lock, python, folder, build)
            (folder / STAMP).write_text(_stamp(lock, python, build))  # last: now it is complete


def _install(name: str, lock: Path, python: Python, folder: Path, build: str) -> str:
    """Make an environment with every package of the locks; return the build that it has."""
    log, inside = folder.with_name(folder.name + ".log"), str(python_of(folder))
    details = f"Python {python.version}, output in the .log file beside it"
    print(f"{name}: installing into {folder} ({details})", flush=True)
    remove(folder)
    log.write_text("")
    output, start = PipOutput(), time.monotonic()

    def run(now: str, *command: str) -> None:
        output.now = now
        with StateLine() as line:

            def show(text: str) -> None:
                output.read(text)
                passed = clock(time.monotonic() - start)
                line.tell(f"{name}: {output.now}; {output.fetched()}; {passed}")

            _run(command, log, show)

    run("making an empty environment", python.path, "-m", "venv", str(folder))
    locks = [lock]
    if name == "torch":
        build = build or _build_of_index(inside, lock)
        locks.append(lock.with_name(f"{lock.stem}-{build}.txt"))
        _tell_build(build)
    # The locks name all that is needed. Only what has a hash there comes in, and no package is
    # built, which would run its code.
    options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-input"]
    files = [word for path in locks for word in ("-r", str(path))]
    pip = [inside, "-m", "pip"]
    run("asking for the packages", *pip, "install", "--progress-bar", "off", *options, *files)
    _check_fit(inside)
    # pip reports success even if a shared library is missing.
    module = ENVIRONMENTS[name].module
    run(f"trying to import {module}", inside, "-c", f"import {module}")
    passed = clock(time.monotonic() - start)
    print(f"{name}: ready after {passed}; {output.fetched()}", flush=True)
    return build


def _run(command: Sequence[str], log: Path, show: Callable[[str], None]) -> None:
    """Run a command whose output goes to the end of a log; show each new part of it.

    Raises:
        UserError: it failed; with the end of the log.
    """
    with log.open("ab") as stream, log.open("rb") as reader:
        reader.seek(0, os.SEEK_END)
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                show(reader.read().decode(errors="replace"))
                time.sleep(POLL_SECONDS)
        finally:
            process.kill()  # does nothing to one that has ended
            process.wait()
        show(reader.read().decode(errors="replace"))
    if process.returncode != 0:
        raise UserError(
            f"{' '.join(command)} failed with exit code {process.returncode}. "
            f"The end of {log}:\n{_tail(log)}\n"
            f"Fix that and run the same command again: it starts from the beginning."
        )


def _check_fit(inside: str) -> None:
    """Raise UserError if a package lacks what it needs; `pip check` names these."""
    command = [inside, "-m", "pip", "check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    gaps = [line for line in found.stdout.splitlines() if not KNOWN_GAPS.fullmatch(line)]
    if found.returncode != 0 and (gaps or not found.stdout):
        raise UserError("\n".join(["the installed packages do not fit together:", *gaps])
                        + found.stderr)  # fmt: skip


def _build_of_index(inside: str, lock: Path) -> str:
    """Return "cpu" where pip's configuration finds the CPU build of torch, else "cuda"."""
    pinned = read_lock(lock.with_name(f"{lock.stem}-cpu.txt"))[0].split()[0]  # torch==2.13.0+cpu
    name, _, version = pinned.partition("==")
    command = [inside, "-m", "pip", "index", "versions", name]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return "cpu" if version in found.replace(",", " ").split() else "cuda"


def _tell_build(build: str) -> None:
    """Print which build of torch is installed, and whether this machine can run that for CUDA."""
    found, needed = newest_cuda(), "CUDA {}.{}".format(*CUDA)
    if build == "cpu":
        print("torch: the CPU build", flush=True)
    elif found is not None and found >= CUDA:
        print(f"torch: the build for {needed}, which this machine's driver serves", flush=True)
    elif sys.platform == "linux":
        has = "no NVIDIA driver" if found is None else "a driver for CUDA {}.{}".format(*found)
        print(f"torch: the build for {needed}, 2.9 GB to download; this machine shows {has}, so it "
              "computes on the CPU until driver 580 or newer is installed", flush=True)  # fmt: skip


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


def end_with_message(work: Callable[[], None]) -> None:
    """Run a command; a user's mistake ends it with one message and exit code 2."""
    try:
        raise_at_interrupt()
        work()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: the same command starts afresh", file=sys.stderr)
        sys.exit(130)


def main() -> None:
    """Make the environments that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python3 -m utils.setup.environments",
        description="Make Python environments ready in .venv/, with the packages of requirements/.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"one of {', '.join(ENVIRONMENTS)}; without names those of all backends are made",
    )
    prepare_all(parser.parse_args().names, PROJECT, os.environ)


if __name__ == "__main__":
    end_with_message(main)
