"""The life of a server: start the models, answer requests, and finish those that have come.

Before: `__main__.py`. After: `gate.py` with each request, `worker_process.py` with each model.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from utils.cli.serve_config import ModelSource, ServeConfig
from utils.serve.addresses import BACKLOG, address_of
from utils.serve.app import Paths
from utils.serve.connections import Connections, raise_file_limit
from utils.serve.documentation import DETECT, PATHS
from utils.serve.gate import Gate
from utils.serve.line import Line
from utils.serve.messages import WorkerSettings
from utils.serve.metrics import Metrics
from utils.serve.served import ServedModel, ServedModels
from utils.serve.tokens import Tokens
from utils.serve.worker_process import WorkerProcess

SENDING_SECONDS = 30.0  # for an answer to reach a slow client
CLOSING_SECONDS = 5  # for connections to close when all is answered
POLL_SECONDS = 0.05

log = logging.getLogger("serve")


def serve(config: ServeConfig, listener: socket.socket, tokens: Tokens) -> None:
    """Serve models until SIGTERM or Ctrl-C; then answer what has come.

    Args:
        listener: where requests come in.

    Raises:
        UserError: a model cannot be used.
        WorkerError: the process of a model ended before it could answer.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # the rest is in our own lines
    models = ServedModels([_served(config, source) for source in config.models])
    asyncio.run(_Service(config, models, tokens, listener).run())


def _served(config: ServeConfig, source: ModelSource) -> ServedModel:
    settings = WorkerSettings(
        name=source.name,
        weights=str(Path(source.weights).absolute()),
        image_size=config.image_size if config.is_size_given else None,
        backend=config.backend,
        device=config.device,
        runtime=config.runtime,
        half=config.half,
        max_pixels=config.max_pixels,
        max_batch=config.max_batch,
        max_wait_ms=config.max_wait_ms,
        timeout=2 * config.timeout,  # a request has been given up long before
    )
    return ServedModel(WorkerProcess(settings), Line(config.max_queue, config.timeout))


class _Service:
    """One server, from its start to its end."""

    def __init__(
        self, config: ServeConfig, models: ServedModels, tokens: Tokens, listener: socket.socket
    ) -> None:
        self._config, self._models, self._listener = config, models, listener
        self._has_tokens = bool(tokens)
        metrics = Metrics()
        for model in models.all:
            metrics.watch(model.name, _figures(model))
        paths = Paths(config, models, metrics)
        self._gate = Gate(
            paths.app, PATHS, tokens, metrics, any_host=bool(tokens) or config.insecure
        )
        self._connections = Connections(
            2 * config.timeout + SENDING_SECONDS, most=raise_file_limit(), metrics=metrics
        )
        self._server = self._make_server()
        self._ends = 0  # how often the end was asked for

    def _make_server(self) -> uvicorn.Server:
        server = uvicorn.Server(
            uvicorn.Config(
                self._gate,  # type: ignore[arg-type]  # its types are those of a plain mapping
                http=self._connections.make,  # type: ignore[arg-type]  # it makes the protocols
                loop="asyncio",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=CLOSING_SECONDS,
            )
        )
        # Signals are answered here: uvicorn would take no connection, not even for /readyz.
        server.capture_signals = contextlib.nullcontext  # type: ignore[assignment]
        return server

    async def run(self) -> None:
        """Serve until the end is asked for."""
        asked = asyncio.Event()
        self._answer_signals(asked)
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._listener]))
        watching = asyncio.ensure_future(self._connections.watch())
        log.info("listening on %s", address_of(self._listener))
        try:
            workers = [model.worker for model in self._models.all]
            if await _before(asked, _all(worker.start() for worker in workers)):
                self._tell_ready()
                await asked.wait()
            await self._finish()
        finally:
            self._server.should_exit = True
            await serving
            watching.cancel()
            await _all(model.worker.close() for model in self._models.all)

    def _answer_signals(self, asked: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._ask_for_end, asked)

    def _ask_for_end(self, asked: asyncio.Event) -> None:
        self._ends += 1
        self._models.is_ending = True
        self._server.force_exit = self._ends > 1
        asked.set()

    def _tell_ready(self) -> None:
        token = ' -H "Authorization: Bearer TOKEN"' if self._has_tokens else ""
        address = address_of(self._listener)
        log.info("ready: curl%s --data-binary @image.jpg %s%s", token, address, DETECT)

    async def _finish(self) -> None:
        """Wait until all that has come is answered, as long as a request may take."""
        for _ in range(math.ceil(self._config.timeout / POLL_SECONDS)):
            if not self._gate.working or self._ends > 1:
                return
            await asyncio.sleep(POLL_SECONDS)
        log.warning("%d requests are not answered in time; ending without them", self._gate.working)


def _figures(model: ServedModel) -> dict[str, Any]:
    return {
        "held_requests": lambda: model.line.taken,
        "worker_restarts": lambda: model.worker.restarts,
        "model_ready": lambda: model.worker.is_ready,
    }


async def _all(work: Any) -> None:
    """Run work concurrently; the first failure ends the rest."""
    tasks: Sequence[asyncio.Task] = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _before(asked: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do work until it is done or the end is asked for; return whether it is done."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(asked.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
        return working.done()
    finally:
        working.cancel()
        waiting.cancel()
