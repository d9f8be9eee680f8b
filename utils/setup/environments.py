"""Make the Python environment of each backend, .venv/torch and .venv/oneflow, and .venv/docs.

    python3 -m duet.utils.setup.environments [torch] [oneflow] [docs]

Those that are named must succeed; .venv/docs builds the site. Without names those of both backends
are made, and OneFlow is left out if it cannot be installed, unless REQUIRE_BACKENDS names it.

They train, validate, detect in images and serve. WITH=extras adds the packages of all optional
features, WITH=dev these and what tests and linters need. TORCH=cuda or TORCH=cpu asks for a build
of torch; without it pip's configuration decides, which names the mirrors. Where pip has none, uv
installs, if it is on PATH. Every wheel must have one of the hashes in the locks.
With DUET_ENVIRONMENT_CACHE set, the environments are in that folder and .venv holds links to them.

It runs before anything is installed, on any `python3` of the machine: standard library only, and no
syntax newer than Python 3.8.
"""

from __future__ import annotations

from duet.utils.processes.start import end_at_interrupt, raise_at_interrupt

if __name__ == "__main__":
    end_at_interrupt()  # while the others are imported

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
from duet.utils.project import PROJECT, STAMP
from duet.utils.system.files import lock as lock_file

CUDA = (13, 0)  # version of torch's CUDA build
LEVELS = ("", "extras", "dev")  # values of WITH; each includes the ones before it
# The Pythons of each environment, the preferred one first. OneFlow 0.9.0 has wheels up to 3.10.
PYTHONS = ("3.13", "3.14", "3.12", "3.11", "3.10")
ENVIRONMENTS = {"torch": PYTHONS, "oneflow": ("3.10",), "docs": PYTHONS}
CORE = "cv2, matplotlib.pyplot, numpy, PIL.Image, psutil, safetensors.numpy, tqdm, yaml"
MODULES = {"torch": f"torch, {CORE}", "oneflow": f"oneflow, {CORE}", "docs": "mkdocs"}
ONEFLOW_PLATFORM = "linux-x86_64"  # the only one it has packages for
# Only packages with a hash in the locks are installed, and none is built: a build runs its code.
# Bytecode of everything takes 0.2 GB: users get only the bytecode of imported modules.
OPTIONS = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-compile")
# pip reports success even if a shared library is missing.
IMPORT = "import sys; sys.dont_write_bytecode = False; import "
# Tests start hundreds of processes, and take the warnings of a compiler for errors.
COMPILE = (
    "import compileall, sysconfig; "
    "compileall.compile_dir(sysconfig.get_path('purelib'), quiet=2, workers=0)"
)
# The real path, because a candidate may be in an environment that will be replaced.
PROBE = (
    "import os, sys; print('%d.%d.%d' % sys.version_info[:3], os.path.realpath(sys.executable)); "
    "import ensurepip, venv"
)


class NoPythonError(UserError):
    """The environment cannot be created; the message gives the reason and the fix."""


def prepare_all(names: Sequence[str], root: Path, environ: Mapping[str, str]) -> dict[str, Path]:
    """Make environments ready, unless they are; return their interpreters.

    root: folder that holds requirements/ and .venv/.
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
    folder, lock = root / ".venv" / name, root / "requirements" / f"{name}.txt"
    build = accepted(environ, "TORCH", ("", "cpu", "cuda")) if name == "torch" else ""
    level = accepted(environ, "WITH", LEVELS) if name != "docs" else ""
    if ready_stamp(lock, folder, build, level):
        return add_command(folder)
    platform = sysconfig.get_platform()
    if name == "oneflow" and platform != ONEFLOW_PLATFORM:
        raise NoPythonError(f"it has packages for {ONEFLOW_PLATFORM} only, this is {platform}")
    python, version = find_python(ENVIRONMENTS[name], environ)
    folder.parent.mkdir(exist_ok=True)
    cache, kept = environ.get("DUET_ENVIRONMENT_CACHE"), folder
    if cache:
        kept = Path(cache).resolve() / f"{name}-{version}{build}-{lock_digest(lock)[:16]}"
    install_once(lock, python, kept, build, level)
    if cache:
        remove(folder)
        folder.symlink_to(kept, target_is_directory=True)
    return add_command(folder)


def accepted(environ: Mapping[str, str], variable: str, values: Sequence[str]) -> str:
    value = environ.get(variable, "")
    if value not in values:
        raise UserError(f"{variable}={value}; {' or '.join(values[1:])} is accepted")
    return value


def find_python(versions: Sequence[str], environ: Mapping[str, str]) -> tuple[str, str]:
    refused = ""
    for path in dict.fromkeys(candidates(versions, environ)):
        found = subprocess.run(
            [path, "-c", PROBE], capture_output=True, encoding="utf-8", check=False
        )
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


def add_command(folder: Path) -> Path:
    """Write an environment's `duet`, for use in the checkout; return its interpreter."""
    command = folder / "bin" / "duet"
    if not command.exists():  # pip's, of an installed Duet, stays
        command.write_text('#!/bin/sh\nexec "${0%/*}/python" -m duet "$@"\n', encoding="utf-8")
        command.chmod(0o755)
    return python_of(folder)


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def read_lock(path: Path) -> list[str]:
    lines = (
        line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()
    )
    return [line for line in lines if line]


def lock_digest(lock: Path) -> str:
    """Return a hexadecimal digest of an environment's locks; comments do not change it."""
    paths = [lock, *sorted(lock.parent.glob(f"{lock.stem}-*.txt"))]
    lines = [line for path in paths for line in read_lock(path)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def ready_stamp(lock: Path, folder: Path, build: str, level: str) -> dict[str, str] | None:
    """Return the stamp of an environment if it is complete and made from this lock, else None.

    build: required torch build, "" for any; level: minimum level of WITH.
    """
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except OSError:
        return None
    fits = stamp["lock"] == lock_digest(lock) and build in ("", stamp["build"])
    enough = fits and LEVELS.index(level) <= LEVELS.index(stamp["level"])
    return stamp if enough and python_of(folder).exists() else None


def remove(folder: Path) -> None:
    """Remove an environment, or only the link to it: other checkouts may use it."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        (folder / STAMP).unlink(missing_ok=True)  # first: after half a removal it is not ready
        shutil.rmtree(folder)


def install_once(lock: Path, python: str, folder: Path, build: str, level: str) -> None:
    """Install into a folder, unless another command has done it or is doing it now."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("wb") as stream:
        lock_file(stream.fileno(), wait=True)
        if not ready_stamp(lock, folder, build, level):
            build = install(lock, python, folder, build, level)
            stamp = {"lock": lock_digest(lock), "build": build, "level": level}
            (folder / STAMP).write_text(
                json.dumps(stamp), encoding="utf-8"
            )  # last: now it is complete


def install(lock: Path, python: str, folder: Path, build: str, level: str) -> str:
    """Make an environment, or add to one of a lower level; return its build of torch."""
    name, inside, locks = lock.stem, str(python_of(folder)), [lock]
    print(f"{name}: installing into {folder}", flush=True)
    stamp = ready_stamp(lock, folder, build, "")
    if not stamp:
        remove(folder)
        run(python, "-m", "venv", str(folder))
    if name == "torch":
        build = stamp["build"] if stamp else build or build_of_index(inside, lock)
        locks.append(lock.with_name(f"{name}-{build}.txt"))
        needs = "CUDA {}.{}, 2.7 GB to download; without driver 580 it computes on the CPU"
        print(f"torch: the build for {needs.format(*CUDA) if build == 'cuda' else 'CPUs'}")
    locks += [lock.with_name(f"{name}-{on}.txt") for on in LEVELS[1 : LEVELS.index(level) + 1]]
    run(*installer(inside), *OPTIONS, *(word for path in locks for word in ("-r", str(path))))
    run(inside, "-c", IMPORT + MODULES[name])
    if level == "dev":
        run(inside, "-W", "ignore", "-c", COMPILE)
    print(f"{name}: ready", flush=True)
    return build


def installer(inside: str) -> list[str]:
    """Return the install command: uv if present, unless pip is configured."""
    uv = shutil.which("uv")
    if uv and not output_of(inside, "-m", "pip", "config", "list").strip():
        # With --require-hashes, ranges such as those in pyproject.toml are not accepted.
        return [uv, "--project", "/", "pip", "install", "--python", inside]
    return [inside, "-m", "pip", "install", "--no-input"]


def build_of_index(inside: str, lock: Path) -> str:
    """Return "cpu" where pip's configuration finds the CPU build of torch, else "cuda"."""
    pinned = read_lock(lock.with_name(f"{lock.stem}-cpu.txt"))[0].split()[0]  # torch==2.13.0+cpu
    name, _, version = pinned.partition("==")
    found = output_of(inside, "-m", "pip", "index", "versions", name)
    return "cpu" if version in found.replace(",", " ").split() else "cuda"


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False).stdout


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
