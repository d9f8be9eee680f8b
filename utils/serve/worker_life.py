"""One process of a worker, from its start to its end, and the requests that it has.

Before: `worker_process.py` starts it, again after each death. After: `models/serving`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from utils.errors import UserError, WorkerError
from utils.files.project import PROJECT
from utils.serve.frames import BrokenFrameError, Frame, receive_frame, start_of
from utils.serve.messages import Query, WorkerSettings

MODULE = "models.serving"
STDERR = 2
LARGE_WINDOW = 2  # large images that a worker has: one it works on, and the next
END_SECONDS = 5  # for a worker whose link has closed


class LostError(Exception):
    """The process ended, or hung and was killed, with this request."""


class NotSentError(Exception):
    """The process ended before this request was sent."""


class Request(NamedTuple):
    """What a worker is asked.

    is_large: the image has more than `LARGE_PIXELS`.
    """

    image: bytes
    query: Query
    answer: str
    is_large: bool


class WorkerLife:
    """A process with a model, and the link to it.

    Attributes:
        first: what it told first: that it is ready, or into what it has converted the weights.
    """

    first: dict[str, Any]
    _process: Process
    _clock: asyncio.TimerHandle
    _reading: asyncio.Task[None]

    def __init__(
        self,
        settings: WorkerSettings,
        on_end: Callable[[], None] = lambda: None,
        folder: Path | None = None,
    ) -> None:
        """Prepare a life.

        Args:
            on_end: called once if the process ends by itself after `start`, before anybody else
                learns it.
            folder: for a file that the weights may be converted to; None: they are run as they are.
        """
        self._settings, self._on_end, self._folder = settings, on_end, folder
        self._numbers = itertools.count()
        self._pending: dict[int, asyncio.Future[Frame]] = {}
        self._has_ended = False

    async def start(self) -> None:
        """Start the process and wait until it tells what it is.

        Raises:
            UserError: it cannot use the weights or the settings.
            WorkerError: it ended, or was not ready in time.
        """
        ours, theirs = socket.socketpair()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        with theirs:
            self._process = await self._spawn(theirs.fileno())
        try:
            self.first = await asyncio.wait_for(self._introduced(), self._settings.start_timeout)
        except BaseException as error:
            self._kill()
            await self.end()
            if isinstance(error, asyncio.TimeoutError):
                raise WorkerError(f"{self._who} was not ready in time") from None
            raise
        self._slots = asyncio.Semaphore(self.first.get("window", 0))
        self._large_slots = asyncio.Semaphore(LARGE_WINDOW)
        self._reading = asyncio.create_task(self._read())

    async def _spawn(self, descriptor: int) -> Process:
        temporary = {"TMPDIR": str(self._folder)} if self._folder else {}
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, str(descriptor),
            cwd=PROJECT, env={**os.environ, **temporary}, pass_fds=[descriptor],
            stdin=DEVNULL, stdout=STDERR,
        )  # fmt: skip

    async def _introduced(self) -> dict[str, Any]:
        """Send the settings; return what the process tells then."""
        settings = {"settings": asdict(self._settings), "folder": str(self._folder or "")}
        try:
            await self._send(settings)
            frame = await receive_frame(self._reader)
        except (OSError, BrokenFrameError):
            frame = None
        if frame is None:
            raise WorkerError(f"{self._who} ended before it was ready")
        if "error" in frame.header:
            raise UserError(frame.header["error"])
        return frame.header

    async def ask(self, request: Request, stays: bool = False) -> Frame:
        """Send a request, as soon as the worker has room for it, and wait for its answer.

        stays: if it is cancelled, end only when the process has answered or died.

        Raises:
            LostError, NotSentError: the process ended.
        """
        with contextlib.ExitStack() as held:
            # Large images first wait for each other, so that small ones find room beside them.
            for slots in (self._large_slots, self._slots)[not request.is_large :]:
                await slots.acquire()
                held.callback(slots.release)
            if self._has_ended:
                raise NotSentError  # the next one that waits for a slot learns it too
            release = held.pop_all().close
        number, answered = next(self._numbers), asyncio.get_running_loop().create_future()
        answered.add_done_callback(lambda _: release())
        answered.add_done_callback(asyncio.Future.exception)  # also where nobody waits for it
        # It stays until the process has answered, also where nobody waits for it any more.
        self._pending[number] = answered
        if len(self._pending) == 1:
            self._wind_clock()
        header = {
            "id": number,
            "query": asdict(request.query),
            "answer": request.answer,
            "is_large": request.is_large,
        }
        try:
            with contextlib.suppress(OSError):  # whoever reads learns it
                await self._send(header, request.image)
            return await asyncio.shield(answered)
        except asyncio.CancelledError:
            self._cancel(number)
            if stays:
                await asyncio.wait([answered])
            raise

    def _cancel(self, number: int) -> None:
        """Tell the process that nobody waits for an answer any more; it still answers."""
        if number in self._pending:
            self._writer.write(start_of({"cancel": number}, 0))

    async def _send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        self._writer.writelines((start_of(header, len(body)), body))
        await self._writer.drain()

    async def _read(self) -> None:
        """Pass answers on until the process ends."""
        # The last two: an answer to nothing that was asked.
        with contextlib.suppress(OSError, BrokenFrameError, LookupError, TypeError):
            while (frame := await receive_frame(self._reader)) is not None:
                self._pending.pop(frame.header["id"]).set_result(frame)
                self._wind_clock()
        self._lose()

    def _lose(self) -> None:
        """Tell everybody who waits that there will be no answer."""
        self._has_ended = True
        self._kill()
        self._writer.transport.abort()
        self._on_end()
        for answered in self._pending.values():
            answered.set_exception(LostError())
        self._pending.clear()
        self._wind_clock()

    def _wind_clock(self) -> None:
        """Restart the timeout if the process owes an answer; it is killed when that ends.

        Its end is then handled like any other. A request that waits behind others is no hang.
        """
        if hasattr(self, "_clock"):
            self._clock.cancel()
        if self._pending:
            loop = asyncio.get_running_loop()
            self._clock = loop.call_later(self._settings.timeout, self._kill)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """End the process; who still waits for an answer gets `LostError`."""
        self._on_end = lambda: None
        self._writer.transport.abort()
        try:
            await asyncio.wait_for(self._process.wait(), END_SECONDS)
        except asyncio.TimeoutError:
            pass
        finally:
            self._kill()
        await self._process.wait()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        if hasattr(self, "_reading"):
            await self._reading

    @property
    def _who(self) -> str:
        return f"the worker of model {self._settings.name}"
