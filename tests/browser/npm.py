"""Pinned packages of npm's registry, for the tests: fetched by npm, their hash checked here.

Nothing of a package is run by npm. They lie in DUET_ENVIRONMENT_CACHE, else in .venv, as the other
environments do. Without npm or node, or with the registry out of reach, the exit code is 3; after
any other failure it is 1. Standard library only, as `install.py` says.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from duet.utils.project import PROJECT

OUT_OF_REACH = 3  # exit code
# As npm names what keeps it from an answer of the registry, or from all of it.
NO_ANSWER = {
    "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND",
    "ETIMEDOUT", "ECONNECTIONTIMEOUT", "EIDLETIMEOUT", "ERESPONSETIMEOUT", "ETRANSFERTIMEOUT",
    "ERR_SOCKET_TIMEOUT", "FETCH_ERROR", "E502", "E503", "E504",
}  # fmt: skip
NPM_SECONDS = 600
FETCH = ("--fetch-timeout", "30000", "--fetch-retries", "1")  # milliseconds


class Package(NamedTuple):
    """A package of the registry."""

    name: str
    version: str
    sha512: str  # as the registry gave it when it was pinned, in base64
    megabytes: int


def installed_folder(name: str, package: Package) -> Path:
    """Where a package lies once it is installed."""
    parent = os.environ.get("DUET_ENVIRONMENT_CACHE") or PROJECT / ".venv"
    return Path(parent).resolve() / f"{name}-{package.version}"


Unpack = Callable[[str, Path, Path], Path]  # program node, archive, a folder to work in -> target


def unpack_files(inside: str, names: Sequence[str]) -> Unpack:
    """Return what unpacks some files of a package into one folder.

    Args:
        inside: where they lie in the package, as "dist/".
    """

    def unpack(node: str, archive: Path, place: Path) -> Path:
        target = place / "files"
        target.mkdir()
        with tarfile.open(archive) as package:
            for name in names:
                member = package.extractfile(f"package/{inside}{name}")
                assert member is not None
                with (target / name).open("wb") as file:
                    shutil.copyfileobj(member, file)
        return target

    return unpack


def install_package(package: Package, target: Path, unpack: Unpack) -> Path:
    """Install a package unless it is there; returns its folder, target.

    Args:
        unpack: takes the program node, the archive and a folder to work in; returns what of it
            becomes target.

    Raises:
        SystemExit: the package cannot be had, with OUT_OF_REACH where that is no fault of it, or
            it is not the pinned one.
    """
    if target.exists():
        return target
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        _end_out_of_reach(f"npm and node are needed to install {package.name} for the tests")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        place = Path(temporary)
        unpacked = unpack(node, _download(npm, package, place), place)
        try:
            os.rename(unpacked, target)
        except OSError:
            if not target.exists():  # else another install was sooner
                raise
    return target


def _end_out_of_reach(reason: str) -> NoReturn:
    print(f"error: {reason}", file=sys.stderr)
    sys.exit(OUT_OF_REACH)


def _download(npm: str, package: Package, place: Path) -> Path:
    wanted = f"{package.name}@{package.version}"
    print(f"fetching {wanted} by npm, {package.megabytes} MB", flush=True)
    command = [npm, "pack", wanted, "--ignore-scripts", "--pack-destination", ".", *FETCH]
    try:
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, check=False, timeout=NPM_SECONDS
        )
    except subprocess.TimeoutExpired:
        _end_out_of_reach(f"{' '.join(command)} did not end within {NPM_SECONDS} s")
    if done.returncode != 0:
        told = f"{' '.join(command)}\n{done.stderr[-2000:]}"
        if NO_ANSWER & set(re.findall(r"^npm (?:error|ERR!) code (\S+)", done.stderr, re.M)):
            _end_out_of_reach(told)
        sys.exit(f"error: {told}")
    (archive,) = place.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != package.sha512:
        sys.exit(f"error: {wanted} has SHA-512 {digest}, expected {package.sha512}")
    return archive
