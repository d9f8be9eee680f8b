"""Install a pinned headless Chromium for the tests that open pages: no root, npm's registry only.

    python3 -m tests.browser.install    # and what pages need: onnxruntime-web, axe-core

Debian's chromium package needs root and 300 MB of libraries, and Playwright loads its browser from
a server of its own. The npm package @sparticuz/chromium holds the headless shell with the libraries
and fonts that a bare machine lacks, in 70 MB.

npm fetches the packages, and runs nothing of them; their hash is checked here. They lie in
DUET_ENVIRONMENT_CACHE, else in .venv, as the other environments do. Where npm or node is absent, or
npm cannot fetch a package, the exit code is 3. Standard library only: this runs on the Python that
the tests are started with.
"""

from __future__ import annotations

import base64
import hashlib
import os
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
NPM_SECONDS = 600
FETCH = ("--fetch-timeout", "30000", "--fetch-retries", "1")  # milliseconds


class Package(NamedTuple):
    """A package of the registry."""

    name: str
    version: str
    sha512: str  # as the registry gave it when it was pinned, in base64
    megabytes: int


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


def installed_folder(name: str, package: Package) -> Path:
    """Where a package lies once it is installed."""
    parent = os.environ.get("DUET_ENVIRONMENT_CACHE") or PROJECT / ".venv"
    return Path(parent).resolve() / f"{name}-{package.version}"


def folder() -> Path:
    """Where the browser lies once it is installed."""
    return installed_folder("chromium", CHROMIUM)


def install_package(package: Package, target: Path, unpack: Callable[[Path, Path], None]) -> Path:
    """Install a package unless it is there; return its folder, target.

    Args:
        unpack: writes what is needed of an archive into an empty folder.

    Raises:
        SystemExit: it cannot be had, with OUT_OF_REACH; or it is not the pinned one.
    """
    if target.exists():
        return target
    if not (npm := shutil.which("npm")) or not shutil.which("node"):
        _end_out_of_reach(f"npm and node are needed to install {package.name} for the tests")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        unpacked = Path(temporary, "unpacked")
        unpacked.mkdir()
        unpack(_download(npm, package, Path(temporary)), unpacked)
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
        subprocess.run(
            command, cwd=place, capture_output=True, text=True, check=True, timeout=NPM_SECONDS
        )
    except subprocess.SubprocessError as error:
        _end_out_of_reach(f"{error}\n{getattr(error, 'stderr', '')}")
    (archive,) = place.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != package.sha512:
        sys.exit(f"error: {wanted} has SHA-512 {digest}, expected {package.sha512}")
    return archive


def unpack_files(archive: Path, target: Path, inside: str, names: Sequence[str]) -> None:
    """Write some files of a package into one folder; inside: where they lie, as "dist/"."""
    with tarfile.open(archive) as package:
        for name in names:
            member = package.extractfile(f"package/{inside}{name}")
            assert member is not None
            (target / name).write_bytes(member.read())


def unpack_browser(archive: Path, browser: Path) -> None:
    """Write the browser with its libraries and fonts into a folder."""
    names = ("chromium", *ARCHIVES)
    unpack_files(archive, browser, "bin/", [f"{name}.br" for name in names])
    subprocess.run(["node", "-e", UNPACK, *names], cwd=browser, check=True, timeout=UNPACK_SECONDS)
    for name in ARCHIVES:
        _extract_files(browser / name)
        (browser / name).unlink()
    for name in names:
        (browser / f"{name}.br").unlink()
    (browser / "chromium").chmod(0o755)


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
    print(f"browser of the tests: {install_package(CHROMIUM, folder(), unpack_browser)}")
    for package, target, inside, names in (
        (WEB_RUNTIME, web_runtime, "dist/", WEB_RUNTIME_FILES), (AXE, axe, "", [AXE_SCRIPT])
    ):  # fmt: skip
        install_package(
            package, target, lambda *places, of=(inside, names): unpack_files(*places, *of)
        )
        print(f"{package.name}: {target}")


if __name__ == "__main__":
    main()
