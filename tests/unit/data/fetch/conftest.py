"""A server of files on the loopback, which misbehaves as a test asks it to; archives and lists.

It is asked directly, whatever proxy the tester has.
"""

import hashlib
import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml


class Site:
    """What is served, and what was asked for."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.files: dict[str, bytes] = {}
        self.types: dict[str, str] = {}  # the Content-Type of a file, if it has one
        self.redirects: dict[str, str] = {}
        self.cuts: list[int] = []  # bytes after which the next connections end
        self.pauses: list[int] = []  # bytes after which the next connections wait for `go_on`
        self.go_on = threading.Event()
        self.has_ranges = self.gives_length = True
        self.asked: list[tuple[str, str | None]] = []  # path and Range of each request

    def put(self, path: str, content: bytes) -> str:
        """Serve a file; return its address."""
        self.files[path] = content
        return self.root + path


def _answer(site: Site, handler: BaseHTTPRequestHandler) -> None:
    path, wanted = handler.path, handler.headers["Range"]
    site.asked.append((path, wanted))
    if path in site.redirects:
        handler.send_response(302)
        handler.send_header("Location", site.redirects[path])
        handler.end_headers()
        return
    if path not in site.files:
        handler.send_error(404)
        return
    content = site.files[path]
    start = int(wanted[6:-1]) if wanted and site.has_ranges else 0
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    if site.gives_length:
        handler.send_header("Content-Length", str(len(content) - start))
    if path in site.types:
        handler.send_header("Content-Type", site.types[path])
    handler.end_headers()
    end = start + site.cuts.pop(0) if site.cuts else len(content)
    with suppress(ConnectionError):  # the client may have gone
        if site.pauses:
            middle = start + site.pauses.pop(0)
            handler.wfile.write(content[start:middle])
            site.go_on.wait(60)
            start = middle
        handler.wfile.write(content[start:end])


@contextmanager
def loopback_site() -> Iterator[Site]:
    """Yield a site that is served until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(site, self)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = Site(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            site.go_on.set()
            server.shutdown()
            thread.join()


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


def tarred(files, mode="w", kind=tarfile.REGTYPE, layout=tarfile.DEFAULT_FORMAT):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=layout) as archive:
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
