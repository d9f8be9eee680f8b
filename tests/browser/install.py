"""Install a pinned headless Chromium for the tests that open pages: no root, npm's registry only.

    python3 -m tests.browser.install

Debian's chromium package needs root and 300 MB of libraries, and Playwright loads its browser from
a server of its own. The npm package @sparticuz/chromium holds the headless shell with the libraries
and fonts that a bare machine lacks, in 70 MB; npm fetches it, its hash is checked here, nothing of
it is run by npm. It lies in DUET_ENVIRONMENT_CACHE, else in .venv, as the other environments do.
Without npm or node, or with its registry out of reach, the exit code is 3; after any other failure
it is 1.

Standard library only: it runs on the Python that the tests are started with.
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
from pathlib import Path
from typing import NoReturn

from utils.files.project import PROJECT

PACKAGE = "@sparticuz/chromium"
VERSION = "149.0.0"
# As the registry gave it when it was pinned.
SHA512 = "2NECBVKlUA9xIUXb4fT8OoGKdAJs+I2tNYscO8FwcxCKCWA7FmpPI0fdVxGJoIJglrFZYn+4YEJqChq4rdrxQg=="
ARCHIVES = ("al2023.tar", "fonts.tar")  # libraries; Open Sans
OUT_OF_REACH = 3  # exit code
# As npm names what keeps it from an answer of the registry, or from all of it.
NO_ANSWER = {
    "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND",
    "ETIMEDOUT", "ECONNECTIONTIMEOUT", "EIDLETIMEOUT", "ERESPONSETIMEOUT", "ETRANSFERTIMEOUT",
    "ERR_SOCKET_TIMEOUT", "FETCH_ERROR", "E502", "E503", "E504",
}  # fmt: skip
NPM_SECONDS, UNPACK_SECONDS = 600, 300
FETCH = ("--fetch-timeout", "30000", "--fetch-retries", "1")  # milliseconds
# Brotli is not in Python's standard library; Node, which npm brings, has it.
UNPACK = "const z=require('zlib'),f=require('fs');for(const n of process.argv.slice(1))" \
    "f.writeFileSync(n,z.brotliDecompressSync(f.readFileSync(n+'.br')))"  # fmt: skip


def folder() -> Path:
    """Where the browser lies once it is installed."""
    parent = os.environ.get("DUET_ENVIRONMENT_CACHE") or PROJECT / ".venv"
    return Path(parent).resolve() / f"chromium-{VERSION}"


def install() -> Path:
    """Install unless it is there; returns its folder.

    Raises:
        SystemExit: the package cannot be had, with OUT_OF_REACH where that is no fault of it, or
            it is not the pinned one.
    """
    target = folder()
    if target.exists():
        return target
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        _end_out_of_reach("npm and node are needed to install the tests' browser")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        place = Path(temporary)
        archive = _download(npm, place)
        _unpack(node, archive, place)
        try:
            os.rename(place / "browser", target)
        except OSError:
            if not target.exists():  # else another install was sooner
                raise
    return target


def _end_out_of_reach(reason: str) -> NoReturn:
    print(f"error: {reason}", file=sys.stderr)
    sys.exit(OUT_OF_REACH)


def _download(npm: str, place: Path) -> Path:
    print(f"fetching {PACKAGE}@{VERSION} by npm, 70 MB", flush=True)
    command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--ignore-scripts", "--pack-destination", "."]
    command += FETCH
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
    subprocess.run([node, "-e", UNPACK, *names], cwd=browser, check=True, timeout=UNPACK_SECONDS)
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
