"""Run the server: listen, start the models, answer requests, and shut down gracefully."""

import asyncio
import contextlib
import ipaddress
import logging
import math
import signal
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from duet.utils.errors import UserError, WorkerError
from duet.utils.serve.app import DETECT, make_app
from duet.utils.serve.config import ServeConfig
from duet.utils.serve.worker import Worker

BACKLOG = 512  # connections waiting to be accepted
MAX_CONNECTIONS = 1_000  # uvicorn answers 503 beyond these
HEAD_BYTES = 1 << 14  # limit of a request without its body
HEAD_SECONDS = 10  # for the head of a request to arrive
IDLE_SECONDS = 5  # wait for the next request on a connection
CLOSING_SECONDS = 5
HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]

log = logging.getLogger("serve")


def serve(
    config: ServeConfig, arguments: Sequence[str], listener: socket.socket, tokens: Sequence[str]
) -> int:
    """Serve until SIGTERM or Ctrl-C, finish accepted requests, and return the exit code."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # we log requests ourselves
    return asyncio.run(_serve(config, Worker(arguments), listener, tokens))


async def _serve(
    config: ServeConfig, worker: Worker, listener: socket.socket, tokens: Sequence[str]
) -> int:
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(config, worker, tokens),
            http=connection_class(min(HEAD_SECONDS, config.timeout), config.timeout),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=HEADERS,
            backlog=BACKLOG,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=math.ceil(config.timeout) + CLOSING_SECONDS,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
    )
    # uvicorn raises the signal again after its shutdown; ignore that.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    running = asyncio.ensure_future(worker.keep_running())
    announcing = asyncio.ensure_future(_announce(worker, listener, bool(tokens)))
    await asyncio.wait({serving, running}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    announcing.cancel()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        code = await running  # the process has logged the reason
        if code < 0:
            raise WorkerError(f"the model process was killed by signal {-code} while starting")
        return code
    return 0


def connection_class(head_seconds: float, read_seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with time limits for a request's head and for reading answers.

    Args:
        head_seconds: from the start of a connection, or the end of an answer, to the end of the
            next request's head.
        read_seconds: for the client to read an answer.
    """

    class TimedConnection(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None
        _read_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait_for_request()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._wait_for_request()

        def _wait_for_request(self) -> None:
            _cancel(self._head_timer)
            self._head_timer = self.loop.call_later(head_seconds, self._end)

        def _end(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()  # once all is sent

        def pause_writing(self) -> None:
            super().pause_writing()
            self._read_timer = self.loop.call_later(read_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            _cancel(self._read_timer)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            _cancel(self._head_timer)
            _cancel(self._read_timer)

    return TimedConnection


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


async def _announce(worker: Worker, listener: socket.socket, has_tokens: bool) -> None:
    """Log the server's address and, once it is ready, an example request."""
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    log.info("listening on %s", address)
    await worker.ready.wait()
    token = ' -H "Authorization: Bearer TOKEN"' if has_tokens else ""
    log.info("ready: curl%s --data-binary @image.jpg %s%s", token, address, DETECT)


def listening_socket(config: ServeConfig) -> socket.socket:
    """Return a listening socket; UserError for an unavailable, or a public unprotected address."""
    host = config.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, config.port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"--host {config.host} --port {config.port}: {reason}; use 127.0.0.1 for this machine "
            "only, 0.0.0.0 for all its addresses, --port 0 for any free port"
        ) from error
    is_open = config.token_file is None and not config.insecure
    if is_open and not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        listener.close()
        raise UserError(
            f"--host {config.host} is reachable from other machines and needs no token; add "
            "--token-file, or --insecure to let anyone use the server"
        )
    # Inherited by connections. Without it, Nagle's algorithm delays answers by 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
