"""A server that answers the page of utils/serve as a test tells it, without a model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from utils.serve.page import read_page


class Asked(NamedTuple):
    """A request for what is in an image."""

    query: dict[str, str]
    accept: str
    token: str | None
    body: bytes


class Told(NamedTuple):
    """What it is answered with."""

    body: bytes
    status: int = 200
    media_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def as_json(value: Any, status: int = 200, *headers: tuple[str, str]) -> Told:
    return Told(json.dumps(value).encode(), status, headers=headers)


def refusal(status: int, message: str, *headers: tuple[str, str]) -> Told:
    return as_json({"error": {"code": "x", "message": message}}, status, *headers)


class StandIn:
    """What the server knows, and what it was asked.

    Attributes:
        models: of /v1/model.
        answer: of a request for what is in an image.
        token: without it a request is refused; "" accepts all.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.models: list[dict[str, Any]] = []
        self.answer: Callable[[Asked], Told] = lambda _: refusal(500, "no answer was set")
        self.token = ""
        self.asked: list[Asked] = []

    def get(self, path: str, token: str | None) -> Told:
        if path == "/":
            page = read_page()
            return Told(page.content, 200, "text/html", tuple(page.headers.items()))
        return self._refused(token) or as_json({"models": self.models})

    def post(self, asked: Asked) -> Told:
        self.asked.append(asked)
        return self._refused(asked.token) or self.answer(asked)

    def _refused(self, token: str | None) -> Told | None:
        if self.token and token != f"Bearer {self.token}":
            return refusal(401, "a token of the server's file is needed; give it to this page")
        return None


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """Yield a server on the loopback that answers until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(server_state.get(urlsplit(self.path).path, self.headers["Authorization"]))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            query = dict(parse_qsl(urlsplit(self.path).query))
            asked = Asked(query, self.headers["Accept"], self.headers["Authorization"], body)
            self._send(server_state.post(asked))

        def _send(self, told: Told) -> None:
            self.send_response(told.status)
            for name, value in told.headers:
                self.send_header(name, value)
            self.send_header("Content-Type", told.media_type)
            self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            with suppress(ConnectionError):  # the page was left
                self.wfile.write(told.body)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server_state = StandIn(f"http://127.0.0.1:{server.server_port}")
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server_state
        finally:
            server.shutdown()
            thread.join()
