"""Archives and lists for tests; addresses are asked directly, whatever proxy the tester has."""

import hashlib
import io
import os
import tarfile
import zipfile

import pytest
import yaml

from tests.unit.data.fetch.loopback_site import loopback_site


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def site():
    with loopback_site() as site:
        yield site


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files, mode="w", kind=tarfile.REGTYPE):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, "/etc/passwd", len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def write_list(folder, *files, **changes):
    path = folder / "list.yaml"
    path.write_text(yaml.safe_dump({"about": "A list.", "files": list(files), **changes}))
    return path


def files_in(folder):
    """The files below a folder by their paths, without the lock."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".fetch.lock"
    }
