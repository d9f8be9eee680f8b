"""axe-core, which finds what keeps people with disabilities from a page, from npm's registry."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from tests.browser.npm import Package, install_package, installed_folder

AXE = Package(
    "axe-core",
    "4.14.1",
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    1,
)
SCRIPT = "axe.min.js"


def folder() -> Path:
    """Where it lies once it is installed."""
    return installed_folder(AXE.name, AXE)


def install() -> Path:
    """Install unless it is there; returns its folder. SystemExit as `npm.py::install_package`."""
    return install_package(AXE, folder(), _unpack)


def _unpack(node: str, archive: Path, place: Path) -> Path:
    target = place / "files"
    target.mkdir()
    with tarfile.open(archive) as package:
        member = package.extractfile(f"package/{SCRIPT}")
        assert member is not None
        with (target / SCRIPT).open("wb") as file:
            shutil.copyfileobj(member, file)
    return target
