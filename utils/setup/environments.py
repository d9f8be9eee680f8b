"""Make the Python environment of each backend, .venv/torch and .venv/oneflow, and .venv/docs.

    python3 -m duet.utils.setup.environments [torch] [oneflow] [docs]

Those that are named must succeed; .venv/docs builds the site. Without names those of both backends
are made, and OneFlow is left out if it cannot be installed, unless REQUIRE_BACKENDS names it.
With DUET_ENVIRONMENT_CACHE set, the environments are in that folder and .venv holds links to them.

pip's configuration names the mirrors, and chooses the CUDA build or the CPU build of torch:
TORCH=cuda or TORCH=cpu asks for one of the two. Where pip has none, uv installs, if it is on PATH.
Every wheel must have one of the hashes in the locks, which `lock.py` writes.

It runs before anything is installed, on any `python3` of the machine: standard library only, and no
syntax newer than Python 3.8.
"""

from __future__ import annotations

from duet.utils.processes.interrupt import end_at_interrupt, raise_at_interrupt

if __name__ == "__main__":
    end_at_interrupt()  # while the others are imported

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from duet.utils.errors import UserError
from duet.utils.project import PROJECT

STAMP = "duet-environment.json"
BUILDS = ("cpu", "cuda")  # of torch
CUDA = (13, 0)  # of the CUDA build
# The Pythons of each environment, the preferred one first. OneFlow 0.9.0 has wheels up to 3.10, and
# this project's syntax is that of 3.10.
ENVIRONMENTS = {
    "torch": ("3.13", "3.12", "3.11", "3.10"),
    "oneflow": ("3.10",),
    "docs": ("3.13", "3.12", "3.11"),
}
MODULES = {"torch": "torch", "oneflow": "oneflow", "docs": "mkdocs"}  # that each must import
ONEFLOW_PLATFORM = "linux-x86_64"  # the only one it has packages for
# Only what has a hash in the locks comes in, and no package is built, which would run its code.
OPTIONS = ("--require-hashes", "--no-deps", "--only-binary", ":all:")
# The real path, because a candidate may be in an environment that will be replaced.
PROBE = (
    "import os, sys; print('%d.%d.%d' % sys.version_info[:3], os.path.realpath(sys.executable)); "
    "import ensurepip, venv"
)


class NoPythonError(UserError):
    """This machine cannot have an environment; the message says why and what to do."""


def prepare_all(names: Sequence[str], root: Path, environ: Mapping[str, str]) -> dict[str, Path]:
    """Make environments ready, unless they are; return their interpreters.

    Args:
        names: environments that must succeed; if empty, those of both backends that this machine
            can have are made.
        root: folder that holds requirements/ and .venv/.

    Raises:
        UserError: a name is unknown, a required one failed, or all failed.
    """
    required = {*names, *environ.get("REQUIRE_BACKENDS", "").split()}
    for name in sorted(required - ENVIRONMENTS.keys()):
        raise UserError(f"unknown environment {name!r}; known are {', '.join(ENVIRONMENTS)}")
    ready, missing = {}, {}
    for name in names or ("torch", "oneflow"):
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
    """Make .venv/<name> ready, unless it is; return its interpreter."""
    folder, lock = root / ".venv" / name, root / "requirements" / f"{name}.txt"
    build = environ.get("TORCH", "") if name == "torch" else ""
    if build not in ("", *BUILDS):
        raise UserError(f"TORCH={build}; {' or '.join(BUILDS)} is accepted")
    if is_ready(lock, folder, build):
        return python_of(folder)
    platform = sysconfig.get_platform()
    if name == "oneflow" and platform != ONEFLOW_PLATFORM:
        raise NoPythonError(f"it has packages for {ONEFLOW_PLATFORM} only, this is {platform}")
    python, version = find_python(ENVIRONMENTS[name], environ)
    folder.parent.mkdir(exist_ok=True)
    cache = environ.get("DUET_ENVIRONMENT_CACHE")
    if not cache:
        install_once(lock, python, folder, build)
        return python_of(folder)
    kept = Path(cache).resolve() / f"{name}{build}-{version}-{lock_digest(lock)[:16]}"
    install_once(lock, python, kept, build)
    remove(folder)
    folder.symlink_to(kept, target_is_directory=True)
    return python_of(folder)


def find_python(versions: Sequence[str], environ: Mapping[str, str]) -> tuple[str, str]:
    """Return path and version of a Python: the running one, or of PATH, pyenv or uv.

    versions: accepted, as "3.10", the preferred one first.
    """
    refused = ""
    for path in dict.fromkeys(candidates(versions, environ)):
        found = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, check=False)
        version, _, real_path = found.stdout.strip().partition(" ")
        minor = version.rpartition(".")[0]
        if minor not in versions:
            refused += f"\n  {path} is {f'Python {version}' if version else 'broken'}"
        elif found.returncode != 0:
            refused += f"\n  {path} lacks venv; on Debian: apt install python{minor}-venv"
        else:
            return real_path, version
    raise NoPythonError(
        f"no usable Python {' or '.join(versions)} on PATH, in pyenv or uv. Looked at:{refused}\n"
        f"  To add one: `pyenv install {versions[0]}`, `uv python install {versions[0]}`, or your "
        "system's package; then run the same command again."
    )


def candidates(versions: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the Pythons that are worth asking for their version, best first."""
    home = Path(environ.get("HOME", ""))
    pyenv, uv = Path(environ.get("PYENV_ROOT") or home / ".pyenv"), home / ".local/share/uv/python"
    names = ["python3", *(f"python{version}" for version in versions)]
    paths = [sys.executable, *(shutil.which(name, path=environ.get("PATH")) for name in names)]
    for version in versions:
        for folders in (pyenv.glob(f"versions/{version}.*"), uv.glob(f"cpython-{version}.*")):
            paths += [str(folder / "bin" / "python3") for folder in sorted(folders, reverse=True)]
    return (path for path in paths if path and os.access(path, os.X_OK))


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


def is_ready(lock: Path, folder: Path, build: str = "") -> bool:
    """Return whether an environment is complete and made from this lock.

    build: of torch that it must have; "" for any.
    """
    try:
        stamp = json.loads((folder / STAMP).read_text())
    except OSError:
        return False
    fits = stamp["lock"] == lock_digest(lock) and build in ("", stamp["build"])
    return fits and python_of(folder).exists()


def remove(folder: Path) -> None:
    """Remove an environment, or only the link to it: other checkouts may use it."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        (folder / STAMP).unlink(missing_ok=True)  # first: after half a removal it is not ready
        shutil.rmtree(folder)


def install_once(lock: Path, python: str, folder: Path, build: str) -> None:
    """Install into a folder, unless another command has done it or is doing it now."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not is_ready(lock, folder, build):
            build = install(lock, python, folder, build)
            stamp = {"lock": lock_digest(lock), "build": build}
            (folder / STAMP).write_text(json.dumps(stamp))  # last: now it is complete


def install(lock: Path, python: str, folder: Path, build: str) -> str:
    """Make an environment with every package of the locks; return the build that it has."""
    name, inside, locks = lock.stem, str(python_of(folder)), [lock]
    print(f"{name}: installing into {folder}", flush=True)
    remove(folder)
    run(python, "-m", "venv", str(folder))
    if name == "torch":
        build = build or build_of_index(inside, lock)
        locks.append(lock.with_name(f"{lock.stem}-{build}.txt"))
        needs = "CUDA {}.{}, 2.9 GB to download; without driver 580 it computes on the CPU"
        print(f"torch: the build for {needs.format(*CUDA) if build == 'cuda' else 'CPUs'}")
    files = [word for path in locks for word in ("-r", str(path))]
    run(*installer(inside), *OPTIONS, *files)
    # pip reports success even if a shared library is missing.
    run(inside, "-c", f"import {MODULES[name]}")
    print(f"{name}: ready", flush=True)
    return build


def installer(inside: str) -> list[str]:
    """Return how packages are installed: by uv where it is, unless pip has settings of its own."""
    uv = shutil.which("uv")
    if uv and not output_of(inside, "-m", "pip", "config", "list").strip():
        return [uv, "pip", "install", "--python", inside]
    return [inside, "-m", "pip", "install", "--no-input"]


def build_of_index(inside: str, lock: Path) -> str:
    """Return "cpu" where pip's configuration finds the CPU build of torch, else "cuda"."""
    pinned = read_lock(lock.with_name(f"{lock.stem}-cpu.txt"))[0].split()[0]  # torch==2.13.0+cpu
    name, _, version = pinned.partition("==")
    found = output_of(inside, "-m", "pip", "index", "versions", name)
    return "cpu" if version in found.replace(",", " ").split() else "cuda"


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def run(*command: str) -> None:
    """Run a command that prints to this terminal; UserError if it fails."""
    sys.stdout.flush()
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise UserError(
            f"{' '.join(command)} failed with exit code {code}, see above; fix that and run the "
            "same command again: it starts from the beginning"
        )


def end_with_message(work: Callable[[], object]) -> None:
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


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in ("-h", "--help"):
        sys.exit(print(__doc__))
    end_with_message(lambda: prepare_all(sys.argv[1:], PROJECT, os.environ))
