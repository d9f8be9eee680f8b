"""A server of files on the loopback, which misbehaves as a test asks it to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site:
    """What is served, and what was asked for."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.files: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}  # the ETag of a file, if it has one
        self.types: dict[str, str] = {}  # the Content-Type of a file, if it has one
        self.redirects: dict[str, str] = {}
        self.statuses: list[int] = []  # of the next answers, instead of files
        self.cuts: list[int] = []  # bytes after which the next connections end
        self.pauses: list[int] = []  # bytes after which the next connections wait for `hold`
        self.has_ranges = True
        self.shift = 0  # bytes by which each part starts too late
        self.tells_length = True
        self.headers: dict[str, str] = {}  # of all answers
        self.hold = threading.Event()  # set: answers come
        self.hold.set()
        self.asked: list[tuple[str, str | None]] = []  # path and Range of each request

    def put(self, path: str, content: bytes, tag: str = "") -> str:
        """Serve a file; return its address."""
        self.files[path], self.tags[path] = content, tag
        return self.root + path


def _answer(site: Site, handler: BaseHTTPRequestHandler) -> None:
    path, wanted = handler.path, handler.headers["Range"]
    site.asked.append((path, wanted))
    site.hold.wait(10)
    if site.statuses:
        handler.send_error(site.statuses.pop(0))
        return
    if path in site.redirects:
        handler.send_response(302)
        handler.send_header("Location", site.redirects[path])
        handler.end_headers()
        return
    if path not in site.files:
        handler.send_error(404)
        return
    content, tag = site.files[path], site.tags[path]
    same = handler.headers["If-Range"] in (None, tag)
    start = int(wanted[6:-1]) if wanted and site.has_ranges and same else 0
    start += site.shift if start else 0
    if start >= len(content):
        handler.send_error(416)
        return
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    if site.tells_length:
        handler.send_header("Content-Length", str(len(content) - start))
    if tag:
        handler.send_header("ETag", tag)
    if path in site.types:
        handler.send_header("Content-Type", site.types[path])
    for name, value in site.headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    end = start + site.cuts.pop(0) if site.cuts else len(content)
    with suppress(ConnectionError):  # who asked has heard enough
        if site.pauses:
            site.hold.clear()
            middle = start + site.pauses.pop(0)
            handler.wfile.write(content[start:middle])
            site.hold.wait(60)
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
            site.hold.set()
            server.shutdown()
            thread.join()
