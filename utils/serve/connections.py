"""Silent and very slow connections are closed; uvicorn would wait for them.

Before: the listening socket. After: uvicorn's protocol, and `gate.py` with each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from utils.serve.failures import error_body
from utils.serve.gate import HEADERS, REQUEST_ID, Message, Receive, Scope, Send
from utils.serve.lingering import LingeringTransport
from utils.serve.metrics import Metrics
from utils.serve.record import UNKNOWN_PATH, Record

HEAD_SECONDS = 10.0  # for the head of a request to come, and for the next one to begin
SWEEP_SECONDS = 0.5
SPARE_FILES = 640  # descriptors for the workers, the log, and what is accepted in one turn
FEWEST_CONNECTIONS = 8
MOST_CONNECTIONS = 4096
CHUNK_BYTES = 64  # of a body, on average: the work for a chunk is that of many bytes
SPARE_CHUNKS = 64  # in what comes at a time
_BAD_REQUEST = error_body("bad_request", "this is no HTTP request; send one of HTTP/1.1")
_SMALL_CHUNKS = error_body(
    "bad_request", f"the body comes in chunks of less than {CHUNK_BYTES} bytes; send larger ones"
)


class _BoundedHttp(h11.Connection):
    """A reader of HTTP with a bounded number of chunks."""

    chunks_left = SPARE_CHUNKS

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Data) and event.chunk_start:
            self.chunks_left -= 1
            if self.chunks_left < 0:
                raise h11.RemoteProtocolError("chunks are too small")
        return event


class Connection(H11Protocol):
    """One connection, which knows for how long nothing has changed."""

    conn: _BoundedHttp
    transport: LingeringTransport  # type: ignore[assignment]  # it has all of a transport

    def __init__(
        self, on_lost: Callable[[Connection], None], metrics: Metrics, **options: Any
    ) -> None:
        super().__init__(**options)
        self.conn = _BoundedHttp(h11.SERVER)
        self._asgi, self.app = self.app, self._ask  # uvicorn asks what it finds as `app`
        self._on_lost, self._metrics = on_lost, metrics
        self._phase: object = None
        self._is_ended = False
        self._since = time.monotonic()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, unless another connection has taken its place meanwhile."""
        linger = LingeringTransport(transport, self._is_receiving)
        super().connection_made(linger)  # type: ignore[arg-type]
        if self._is_ended:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._on_lost(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what has come; of an answered request nothing is read any more."""
        if self.transport.lingers:
            self.transport.drop(data)
            return
        self.conn.chunks_left = SPARE_CHUNKS + len(data) // CHUNK_BYTES
        super().data_received(data)

    def shutdown(self) -> None:
        """End when the request at hand is answered."""
        if self.transport.lingers:
            self.end()
        else:
            super().shutdown()

    def _is_receiving(self) -> bool:
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    async def _ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered; an answer before the end of the body is the last one."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and self._is_receiving():
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        await self._asgi(scope, receive, answer)

    @property
    def is_silent(self) -> bool:
        """Whether it has nothing to send, and waits for the head of a request."""
        if self.transport is None:  # it is being made
            return True
        is_waiting = self.conn.their_state is h11.IDLE or self.transport.lingers
        return is_waiting and not self.transport.get_write_buffer_size()

    def seconds_in_phase(self, now: float) -> float:
        """Return the seconds of silence since its last request, or of the present request."""
        phase = self.is_silent, self.cycle
        if phase != self._phase:
            self._phase, self._since = phase, now
        return now - self._since

    def end(self) -> None:
        """End it at once, or as soon as it is made."""
        self._is_ended = True
        if self.transport is not None:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, in the form of all errors."""
        body = _SMALL_CHUNKS if self.conn.chunks_left < 0 else _BAD_REQUEST
        record = Record("?", UNKNOWN_PATH, status=400, code="bad_request")
        head = [
            *HEADERS,
            (REQUEST_ID, record.id.encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        with contextlib.suppress(h11.LocalProtocolError):  # an answer has begun
            for event in (
                h11.Response(status_code=400, headers=head, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # its answer would come after this one
            self.cycle.message_event.set()
        self._metrics.count_request(record.path, record.status, record.seconds)
        record.write()


class _Refused(asyncio.Protocol):
    """A connection for which there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Connections:
    """All connections of a server: a bounded number, each with a bounded time."""

    def __init__(self, request_seconds: float, most: int, metrics: Metrics) -> None:
        """Keep the limits.

        Args:
            request_seconds: for a request from its head to the last byte of its answer.
            most: connections at a time.
            metrics: where requests count that never reach the gate.
        """
        self._request_seconds, self._most, self._metrics = request_seconds, most, metrics
        self._all: dict[Connection, None] = {}  # the oldest first

    def make(self, **options: Any) -> asyncio.Protocol:
        """Return the protocol of a new connection; a silent one is closed if room is needed."""
        if len(self._all) >= self._most and not self._end_a_silent_one():
            return _Refused()
        connection = Connection(self._forget, self._metrics, **options)
        self._all[connection] = None
        return connection

    def _end_a_silent_one(self) -> bool:
        silent = next((connection for connection in self._all if connection.is_silent), None)
        if silent is not None:
            self._end(silent)
        return silent is not None

    def _end(self, connection: Connection) -> None:
        self._forget(connection)
        connection.end()

    def _forget(self, connection: Connection) -> None:
        self._all.pop(connection, None)

    async def watch(self) -> None:
        """Close connections that take too long, until this is cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep(time.monotonic())

    def sweep(self, now: float) -> None:
        """End connections that were silent, or at one request, for too long."""
        for connection in list(self._all):
            limit = HEAD_SECONDS if connection.is_silent else self._request_seconds
            if connection.seconds_in_phase(now) > limit:
                self._end(connection)


def raise_file_limit() -> int:
    """Have this process open as many files as it may; return how many connections that allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    files = max(soft, wanted) if soft != resource.RLIM_INFINITY else wanted
    return max(FEWEST_CONNECTIONS, min(MOST_CONNECTIONS, files - SPARE_FILES))
