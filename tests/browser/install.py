"""Install a pinned headless Chromium for the tests that open pages: no root, npm's registry only.

    python3 -m tests.browser.install

Debian's chromium package needs root and 300 MB of libraries, and Playwright loads its browser from
a server of its own. The npm package @sparticuz/chromium holds the headless shell with the libraries
and fonts that a bare machine lacks, in 70 MB; npm fetches it, its hash is checked here, nothing of
it is run by npm. It lies in DUET_ENVIRONMENT_CACHE, else in .venv, as the other environments do.

Standard library only: it runs on the Python that the tests are started with.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "@sparticuz/chromium"
VERSION = "149.0.0"
# As the registry gave it when it was pinned.
SHA512 = "2NECBVKlUA9xIUXb4fT8OoGKdAJs+I2tNYscO8FwcxCKCWA7FmpPI0fdVxGJoIJglrFZYn+4YEJqChq4rdrxQg=="
ARCHIVES = ("al2023.tar", "fonts.tar")  # libraries; Open Sans
# Brotli is not in Python's standard library; Node, which npm brings, has it.
UNPACK = "const z=require('zlib'),f=require('fs');for(const n of process.argv.slice(1))" \
    "f.writeFileSync(n,z.brotliDecompressSync(f.readFileSync(n+'.br')))"  # fmt: skip


def folder() -> Path:
    """Where the browser lies once it is installed."""
    parent = os.environ.get("DUET_ENVIRONMENT_CACHE") or ROOT / ".venv"
    return Path(parent).resolve() / f"chromium-{VERSION}"


def install() -> Path:
    """Install unless it is there; returns its folder.

    Raises:
        SystemExit: npm or node is absent, the package cannot be had, or it is not the pinned one.
    """
    target = folder()
    if target.exists():
        return target
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        sys.exit("error: npm and node are needed to install the tests' browser")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        place = Path(temporary)
        archive = _download(npm, place)
        _unpack(node, archive, place)
        os.rename(place / "browser", target)
    return target


def _download(npm: str, place: Path) -> Path:
    command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--ignore-scripts", "--pack-destination", "."]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)}\n{done.stderr[-2000:]}")
    (archive,) = place.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != SHA512:
        sys.exit(f"error: {PACKAGE}@{VERSION} has SHA-512 {digest}, expected {SHA512}")
    return archive


def _unpack(node: str, archive: Path, place: Path) -> None:
    browser = place / "browser"
    browser.mkdir()
    names = ("chromium", *ARCHIVES)
    with tarfile.open(archive) as package:
        for name in names:
            member = package.extractfile(f"package/bin/{name}.br")
            assert member is not None
            with (browser / f"{name}.br").open("wb") as file:
                shutil.copyfileobj(member, file)
    subprocess.run([node, "-e", UNPACK, *names], cwd=browser, check=True)
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
    print(f"browser of the tests: {install()}")


if __name__ == "__main__":
    main()
