"""The files of onnxruntime-web that the page of docs/examples/export loads, from npm's registry."""

from __future__ import annotations

from pathlib import Path

from tests.browser.npm import Package, install_package, installed_folder, unpack_files

# The version of docs/examples/export/browser/package.json.
WEB_RUNTIME = Package(
    "onnxruntime-web",
    "1.23.2",
    "T09JUtMn+CZLk3mFwqiH0lgQf+4S7+oYHHtk6uhaYAAJI95bTcKi5bOOZYwORXfS/RLZCjDDEXGWIuOCAFlEjg==",
    26,
)
FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")


def folder() -> Path:
    """Where its files lie once they are installed."""
    return installed_folder(WEB_RUNTIME.name, WEB_RUNTIME)


def install() -> Path:
    """Install unless it is there; returns its folder. SystemExit as `npm.py::install_package`."""
    return install_package(WEB_RUNTIME, folder(), unpack_files("dist/", FILES))
