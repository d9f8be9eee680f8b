"""axe-core, which finds what keeps people with disabilities from a page, from npm's registry."""

from __future__ import annotations

from pathlib import Path

from tests.browser.npm import Package, install_package, installed_folder, unpack_files

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
    return install_package(AXE, folder(), unpack_files("", [SCRIPT]))
