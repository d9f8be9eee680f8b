"""Find a Python for a backend's environment, in all usual folders.

Before: `utils/setup/environments.py` says which versions fit. After: it installs with the Python
that was found.

Standard library only, and no syntax newer than Python 3.8.
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

# It prints before the last two imports: a Python without them still names its version.
# The real path, because `path` may be a shim, or in an environment that will be replaced.
PROBE = (
    "import os, sys; print('%d.%d.%d' % sys.version_info[:3]); "
    "print(os.path.realpath(sys.executable)); import ensurepip, venv"
)
PROBE_SECONDS = 30


class Python(NamedTuple):
    """A Python that runs."""

    path: str  # of the installation, not of a shim or virtual environment
    version: str  # "3.10.13"


class UnfitPythonError(ValueError):
    """A file cannot serve as the Python of an environment; the message says why."""


class NoPythonError(UserError):
    """This machine cannot have an environment; the message says why and what to do."""


def find_python(minor_versions: Sequence[str], environ: Mapping[str, str]) -> Python:
    """Return the first usable Python: the running one, then PATH's, pyenv's and uv's.

    Args:
        minor_versions: accepted, as "3.10", the preferred one first.
        environ: PATH, HOME and PYENV_ROOT are read.

    Raises:
        NoPythonError: none is usable.
    """
    refused: dict[str, str] = {}
    for path in candidates(minor_versions, environ):
        try:
            if path not in refused:
                return probe(path, minor_versions)
        except UnfitPythonError as error:
            refused[path] = str(error)
    looked_at = "".join(f"\n  {path} {reason}" for path, reason in refused.items())
    raise NoPythonError(
        f"no usable Python {' or '.join(minor_versions)} on PATH, in pyenv or uv. "
        f"Looked at:{looked_at}\n"
        f"  To add one: `pyenv install {minor_versions[0]}`, `uv python install "
        f"{minor_versions[0]}`, or your system's package; then run the same command again."
    )


def candidates(minor_versions: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield paths worth probing, best first."""
    yield sys.executable
    for name in ["python3", *(f"python{version}" for version in minor_versions)]:
        # All of PATH, not the first hit: a pyenv shim that fails may hide a Python that works.
        for folder in filter(None, environ.get("PATH", "").split(os.pathsep)):
            found = shutil.which(name, path=folder)
            if found:
                yield found
    home = Path(environ.get("HOME", ""))
    pyenv, uv = Path(environ.get("PYENV_ROOT") or home / ".pyenv"), home / ".local/share/uv/python"
    for version in minor_versions:
        managed = [*pyenv.glob(f"versions/{version}.*"), *uv.glob(f"cpython-{version}.*")]
        yield from (str(folder / "bin" / "python3") for folder in sorted(managed, reverse=True))


def probe(path: str, minor_versions: Sequence[str]) -> Python:
    """Run a candidate to learn its version: a file with the right name may be a broken shim.

    Raises:
        UnfitPythonError: it does not run, is of another version, or makes no environments.
    """
    try:
        done = subprocess.run(
            [path, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnfitPythonError(f"does not run: {error}") from error
    answer = done.stdout.splitlines()
    if len(answer) != 2:
        said = done.stderr.strip() or "no output"
        raise UnfitPythonError(f"does not run: {said.splitlines()[0]}")
    version, real_path = answer
    minor_version = version.rpartition(".")[0]
    if minor_version not in minor_versions:
        raise UnfitPythonError(f"is Python {version}")
    if done.returncode != 0:
        package = f"python{minor_version}-venv"
        raise UnfitPythonError(
            f"lacks venv or ensurepip; on Debian and Ubuntu: apt install {package}"
        )
    return Python(real_path, version)
