"""A server of files on the loopback, which misbehaves as a test asks it to."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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
