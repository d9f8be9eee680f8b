"""The worker of a model, as the front process sees it: it is restarted when it dies.

Before: an HTTP request. After: `worker_life.py`, and `models/serving` in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from utils.errors import UserError, WorkerError
from utils.export.formats import is_exported
from utils.screen.text import printable
from utils.serve.frames import Frame
from utils.serve.messages import (
    Answer,
    BadImageError,
    Query,
    WorkerLostError,
    WorkerSettings,
)
from utils.serve.own_folder import OwnFolder
from utils.serve.worker_life import LostError, NotSentError, Request, WorkerLife

LONGEST_PAUSE = 60.0  # seconds before a worker starts again; also how long one lives that is well
LOST = "the model's process ended twice while it had this request; send another image"
ENDS = "the server ends; send the image again when it is back"
NOT_THERE = "the model's process ended and does not start again; the server's log has the reason"

log = logging.getLogger("serve")


class WorkerProcess:
    """A process with a model; it is started again when it dies, and its requests are repeated.

    One of them may have killed it. So they are repeated one at a time, with no other request in
    work: one that kills it again is given up, and no other request is lost.

    Attributes:
        model: what /v1/model tells: name, task, class_names, image_size, runs_in, max_batch and
            weights, a file name.
        is_ready: it can answer now.
        restarts: how often it was started again.
        waiting: requests that wait for their answer.
    """

    _life: asyncio.Future[WorkerLife]  # the one that answers, as soon as there is one

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings, self.name = settings, settings.name
        self._lived = settings  # or with the file that the weights were converted to
        self.model: dict[str, Any] = {}
        self.is_ready, self.restarts, self.waiting = False, 0, 0
        self._last: WorkerLife | None = None
        self._folder: OwnFolder | None = None
        self._suspected = self._deaths = 0
        self._born = 0.0
        self._starting: asyncio.Task[None] | None = None
        self._none_suspected, self._one_at_a_time = asyncio.Event(), asyncio.Lock()

    async def start(self) -> None:
        """Start the process; return when it can answer.

        Raises:
            UserError: the weights or the settings cannot be used.
            WorkerError: it died, or was not ready in time.
        """
        self._none_suspected.set()
        self._expect_life()
        try:
            if not is_exported(self.settings.weights):
                self._folder = OwnFolder()
            await self._begin_life()
        except BaseException:
            self._remove_folder()
            raise

    def _expect_life(self) -> None:
        """Have requests wait for the next life, or for the news that there is none."""
        self.is_ready = False
        self._life = asyncio.get_running_loop().create_future()
        self._life.add_done_callback(asyncio.Future.exception)  # also where nobody waits for it

    async def _begin_life(self) -> None:
        """Start a process; if it only converts the weights, then another one that runs the file."""
        is_file = is_exported(self._lived.weights)
        folder = None if is_file or self._folder is None else self._folder.path
        life = WorkerLife(self._lived, self._lost, folder)
        await life.start()
        if "converted" in life.first:
            await life.end()
            self._lived = replace(self._lived, weights=life.first["converted"])
            life = WorkerLife(self._lived, self._lost)
            await life.start()
        self.model = {**life.first["model"], "weights": Path(self.settings.weights).name}
        self._born = time.monotonic()
        self.is_ready = True
        self._last = life
        self._life.set_result(life)

    def _lost(self) -> None:
        """Begin again: the process has ended by itself."""
        self._expect_life()
        if time.monotonic() - self._born > LONGEST_PAUSE:
            self._deaths = 0
        self._starting = asyncio.create_task(self._restart())

    async def _restart(self) -> None:
        assert self._last is not None, "it has died"
        await self._last.end()
        while not self.is_ready:
            self._deaths += 1
            pause = 0 if self._deaths == 1 else min(2.0 ** (self._deaths - 2), LONGEST_PAUSE)
            log.error("model %s: its process ended; it starts again in %g s", self._shown, pause)
            await asyncio.sleep(pause)
            try:
                await self._begin_life()
                self.restarts += 1
            except (UserError, WorkerError, OSError) as error:
                log.error("model %s: %s", self._shown, printable(str(error)))
                self._life.set_exception(WorkerLostError(NOT_THERE))
                self._expect_life()

    async def detect(
        self, image: bytes, query: Query, answer: str, is_large: bool = False
    ) -> Answer:
        """Return what is found in an image file.

        Args:
            image: the bytes of the file.
            answer: a key of `MEDIA_TYPES`.
            is_large: the image has more than `LARGE_PIXELS`.

        Raises:
            BadImageError: the image cannot be read.
            UserError: a query that the model cannot honour: a class that it does not know.
            WorkerLostError: the worker died or hung, twice.
            WorkerError: the model failed on this image; the log has the reason.
        """
        request = Request(image, query, answer, is_large)
        self.waiting += 1
        try:
            try:
                frame = await self._ask(request)
            except LostError:
                frame = await self._ask_alone(request)
        finally:
            self.waiting -= 1
        return _answer_of(frame)

    async def _ask(self, request: Request) -> Frame:
        """Ask as soon as the worker lives and no request is repeated."""
        while True:
            life = await asyncio.shield(self._life)
            if self._suspected:
                await self._none_suspected.wait()
                continue
            with contextlib.suppress(NotSentError):
                return await life.ask(request)

    async def _ask_alone(self, request: Request) -> Frame:
        """Ask once more; a caller may give up at once, and the image still has its turn."""
        asking = asyncio.ensure_future(self._asked_alone(request))
        try:
            return await asyncio.shield(asking)
        finally:
            asking.cancel()

    async def _asked_alone(self, request: Request) -> Frame:
        """Ask while nothing else is asked, until the process has answered or died."""
        self._suspected += 1
        self._none_suspected.clear()
        try:
            async with self._one_at_a_time:
                while True:
                    life = await asyncio.shield(self._life)
                    with contextlib.suppress(NotSentError):
                        return await life.ask(request, stays=True)
        except LostError:
            raise WorkerLostError(LOST) from None
        finally:
            self._suspected -= 1
            if not self._suspected:
                self._none_suspected.set()

    async def close(self) -> None:
        """End the process, if it was started; who waits for an answer gets `WorkerLostError`."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._last is not None:
            if self.is_ready:
                self._expect_life()
            self._life.set_exception(WorkerLostError(ENDS))
            await self._last.end()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.remove()
        self._folder = None

    @property
    def _shown(self) -> str:
        return printable(self.name)


def _answer_of(frame: Frame) -> Answer:
    """Return an answer, or raise the error that the worker tells."""
    header = frame.header
    if header["status"] == "ok":
        times = header["milliseconds"]
        return Answer(
            frame.body, header["media_type"], times, header["count"], header.get("batch", 1)
        )
    errors = {"bad_image": BadImageError, "refused": UserError}
    raise errors.get(header["status"], WorkerError)(header["message"])
