"""What every request passes: its number, its token, security headers, the log and the metrics.

Before: uvicorn. After: `app.py`. It is plain ASGI: a middleware of Starlette's own kind would cost
more than all else here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any

from utils.screen.text import printable
from utils.serve.failures import RequestError, error_body
from utils.serve.metrics import Metrics
from utils.serve.record import UNKNOWN_PATH, Record
from utils.serve.tokens import Tokens

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/", "/healthz", "/readyz")  # without a token
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
OTHER_METHOD = "OTHER"
REQUEST_ID = b"x-request-id"
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]

ENDED = RequestError(503, "ending", "the server ended before the answer; send it again later")

log = logging.getLogger("serve")


class Gate:
    """An ASGI application around another one.

    Attributes:
        working: requests without their answer.
    """

    def __init__(
        self,
        app: App,
        paths: Collection[str],
        tokens: Tokens,
        metrics: Metrics,
        any_host: bool,
    ) -> None:
        """Keep what requests are checked against.

        Args:
            paths: all that the application answers.
            any_host: whether the Host header may name others than the loopback. A page of another
                site could have its own name lead to the loopback, and read the answers.
        """
        self._app, self._paths = app, frozenset(paths)
        self._tokens, self._metrics, self._any_host = tokens, metrics, any_host
        self.working = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"] if scope["path"] in self._paths else UNKNOWN_PATH
        method = scope["method"] if scope["method"] in METHODS else OTHER_METHOD
        record = Record(method, path)
        answer = _answering(record, send)
        self.working += 1
        try:
            await self._pass(scope, receive, answer, record)
        except asyncio.CancelledError:  # by the end of the server, which waits no longer
            record.code = ENDED.code
            if not record.status:
                await send_error(answer, ENDED)
        except Exception:
            # The application has answered with 500.
            log.error("request %s:\n%s", record.id, printable_trace())
        finally:
            self.working -= 1
            self._metrics.count_request(path, record.status, record.seconds)
            record.write()

    async def _pass(self, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        try:
            self._check(scope)
        except RequestError as error:
            record.code = error.code
            await send_error(send, error)
            return
        # The path of a HEAD is that of the GET; uvicorn, which keeps its own scope, sends no body.
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._app({**scope, "method": method, "record": record}, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if scope["path"] not in OPEN_PATHS:
            if self._tokens:
                self._tokens.require(headers.get(b"authorization", b""))
            elif _is_of_other_site(headers):
                raise RequestError(
                    403,
                    "foreign_page",
                    "a page of another site sent this request; open the page of this server "
                    "instead, or start it with --token-file",
                )
        if not self._any_host and not _is_loopback(headers.get(b"host", b"").decode("latin-1")):
            raise RequestError(
                421,
                "wrong_host",
                "this server answers only to localhost; ask it as http://localhost, or start it "
                "with --token-file or --insecure to have it answer to other names",
            )


def _answering(record: Record, send: Send) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            record.status = message["status"]
            headers = list(message["headers"])
            given = {name for name, _ in headers}
            headers += [header for header in HEADERS if header[0] not in given]
            message = {**message, "headers": [*headers, (REQUEST_ID, record.id.encode())]}
        await send(message)

    return answer


async def send_error(send: Send, error: RequestError) -> None:
    """Send an error as the answer."""
    body = error.body
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    headers |= {name.lower(): value for name, value in error.headers.items()}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def _is_of_other_site(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser asks for a page that this server has not sent."""
    own = headers.get(b"host", b"").lower()
    origin = headers.get(b"origin")  # "null" for a page of no site, such as a file
    is_other = origin is not None and origin.lower().partition(b"://")[2] != own
    return is_other or headers.get(b"sec-fetch-site") == b"cross-site"


def _is_loopback(host: str) -> bool:
    """Whether a Host header names this machine for itself, with any port."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name.lower() in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def printable_trace() -> str:
    """Return the traceback of the error at hand, each line printable."""
    return "\n".join(map(printable, traceback.format_exc().splitlines()))


INTERNAL = error_body("internal", "the server failed at this request; its log says why")
