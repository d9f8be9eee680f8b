"""Install a pinned headless Chromium for the tests that open pages: no root, npm's registry only.

    python3 -m tests.browser.install    # and what pages need: onnxruntime-web, axe-core

Debian's chromium package needs root and 300 MB of libraries, and Playwright loads its browser from
a server of its own. The npm package @sparticuz/chromium holds the headless shell with the libraries
and fonts that a bare machine lacks, in 70 MB. `npm.py` says where it lies, and the exit codes.

Standard library only: it runs on the Python that the tests are started with.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.browser.npm import Package, install_package, installed_folder, unpack_files

CHROMIUM = Package(
    "@sparticuz/chromium",
    "149.0.0",
    "2NECBVKlUA9xIUXb4fT8OoGKdAJs+I2tNYscO8FwcxCKCWA7FmpPI0fdVxGJoIJglrFZYn+4YEJqChq4rdrxQg==",
    70,
)
# Finds what keeps people with disabilities from a page.
AXE = Package(
    "axe-core",
    "4.14.1",
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    1,
)
AXE_SCRIPT = "axe.min.js"
# What the page of docs/examples/export loads; the version of its browser/package.json.
WEB_RUNTIME = Package(
    "onnxruntime-web",
    "1.23.2",
    "T09JUtMn+CZLk3mFwqiH0lgQf+4S7+oYHHtk6uhaYAAJI95bTcKi5bOOZYwORXfS/RLZCjDDEXGWIuOCAFlEjg==",
    26,
)
WEB_RUNTIME_FILES = (
    "ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm",
)  # fmt: skip
ARCHIVES = ("al2023.tar", "fonts.tar")  # libraries; Open Sans
UNPACK_SECONDS = 300
# Brotli is not in Python's standard library; Node, which npm brings, has it.
UNPACK = "const z=require('zlib'),f=require('fs');for(const n of process.argv.slice(1))" \
    "f.writeFileSync(n,z.brotliDecompressSync(f.readFileSync(n+'.br')))"  # fmt: skip


def folder() -> Path:
    """Where the browser lies once it is installed."""
    return installed_folder("chromium", CHROMIUM)


def install() -> Path:
    """Install unless it is there; returns its folder. SystemExit as `npm.py::install_package`."""
    return install_package(CHROMIUM, folder(), _unpack)


def _unpack(node: str, archive: Path, place: Path) -> Path:
    """The browser with its libraries and fonts, in a folder of place."""
    browser = place / "browser"
    browser.mkdir()
    names = ("chromium", *ARCHIVES)
    with tarfile.open(archive) as package:
        for name in names:
            member = package.extractfile(f"package/bin/{name}.br")
            assert member is not None
            with (browser / f"{name}.br").open("wb") as file:
                shutil.copyfileobj(member, file)
    subprocess.run([node, "-e", UNPACK, *names], cwd=browser, check=True, timeout=UNPACK_SECONDS)
    for name in ARCHIVES:
        _extract_files(browser / name)
        (browser / name).unlink()
    for name in names:
        (browser / f"{name}.br").unlink()
    (browser / "chromium").chmod(0o755)
    return browser


def _extract_files(archive: Path) -> None:
    """Beside the archive, its plain files; `extractall(filter=...)` is not in every Python 3.11."""
    with tarfile.open(archive) as inner:
        for member in inner.getmembers():
            content = inner.extractfile(member)
            if content is not None:
                target = archive.parent / member.name
                assert archive.parent in target.resolve().parents, member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())


def main() -> None:
    web_runtime, axe = (installed_folder(one.name, one) for one in (WEB_RUNTIME, AXE))
    print(f"browser of the tests: {install()}")
    install_package(WEB_RUNTIME, web_runtime, unpack_files("dist/", WEB_RUNTIME_FILES))
    print(f"runtime of the page that detects: {web_runtime}")
    install_package(AXE, axe, unpack_files("", [AXE_SCRIPT]))
    print(f"judge of accessibility: {axe}")


if __name__ == "__main__":
    main()
