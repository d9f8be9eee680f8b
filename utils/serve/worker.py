"""The model process, restarted whenever it ends; and the Prometheus metrics."""

import asyncio
import contextlib
import itertools
import logging
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

from duet.utils.serve.frames import Frame, Header, pack_frame, receive_frame
from duet.utils.system.children import child_options

MODULE = "duet.models.detect"
PAUSE_SECONDS = 1.0  # before a restart
END_SECONDS = 5.0  # to exit after closing its output

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REQUESTS = Counter("duet_requests", "Requests", ("path", "status"))
REQUEST_SECONDS = Histogram("duet_request_seconds", "Head to answer", ("path",), buckets=SECONDS)
STAGE_SECONDS = Histogram(
    "duet_stage_seconds", "Time of an image in a stage", ("model", "stage"), buckets=SECONDS
)
BATCH_IMAGES = Histogram("duet_batch_images", "Images of a batch", ("model",), buckets=BATCHES)
FOUND = Counter("duet_found", "Objects found", ("model",))
HELD = Gauge("duet_held_requests", "Requests that wait for an answer", ("model",))
RESTARTS = Counter("duet_worker_restarts", "Starts of the model process after the first")
READY = Gauge("duet_ready", "1 while the models can answer")

log = logging.getLogger("serve")


class Worker:
    _process: Process

    def __init__(self, arguments: Sequence[str]) -> None:
        """arguments: the server's command line, for the process."""
        self._arguments = arguments
        self.models: list[Header] = []  # for /v1/model; empty until it was ready once
        self.ready = asyncio.Event()  # set while it accepts requests
        self._numbers = itertools.count()
        self._pending: dict[int, asyncio.Future[Frame]] = {}
        self._last_answer = 0.0  # its time, or that of being ready
        self._sending = asyncio.Lock()
        READY.set_function(self.ready.is_set)

    async def keep_running(self) -> int:
        """Start the process, and restart it whenever it ends, until cancelled.

        Return the exit code of a first process that never became ready; it printed the reason.
        """
        while True:
            code = await self._run_once()
            if not self.models:
                return code
            log.error("the model process ended with exit code %d; restarting it", code)
            await asyncio.sleep(PAUSE_SECONDS)
            RESTARTS.inc()

    async def _run_once(self) -> int:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, *self._arguments, stdin=PIPE, stdout=PIPE,
            **child_options(),  # Ctrl-C goes to the server only
        )  # fmt: skip
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ValueError, LookupError):
                await self._deliver_answers()
            self._fail_requests()  # at once; the exit code takes a moment
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._process.wait(), END_SECONDS)
        finally:
            self._kill()
            code = await self._process.wait()
        return code

    def _fail_requests(self) -> None:
        self.ready.clear()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the model process ended; try again"))
        self._pending.clear()

    def _kill(self) -> None:
        self.ready.clear()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _deliver_answers(self) -> None:
        assert self._process.stdout is not None
        self.models = (await receive_frame(self._process.stdout))[0]["models"]
        self._last_answer = time.monotonic()
        self.ready.set()
        while True:
            frame = await receive_frame(self._process.stdout)
            self._last_answer = time.monotonic()
            answer = self._pending.pop(frame[0]["id"], None)
            if answer is not None and not answer.done():  # else nobody waits for it any more
                answer.set_result(frame)

    async def ask(self, header: Header, body: bytes, seconds: float) -> Frame:
        """Send a request when the process is ready, and return the answer.

        Raises:
            ConnectionError: the process ended first.
            asyncio.TimeoutError: no answer in time. If the process has answered no other request in
                that time either, it hangs and is restarted.
        """
        sent = time.monotonic()
        message = {**header, "id": next(self._numbers), "deadline": sent + seconds}
        try:
            return await asyncio.wait_for(self._exchange(message, body), seconds)
        except asyncio.TimeoutError:
            if self.ready.is_set() and self._last_answer < sent:
                log.error("the model process has not answered for %g s; killing it", seconds)
                self._kill()
            raise

    async def _exchange(self, header: Header, body: bytes) -> Frame:
        await self.ready.wait()
        answer = self._pending[header["id"]] = asyncio.get_running_loop().create_future()
        try:
            assert self._process.stdin is not None
            async with self._sending:
                with contextlib.suppress(ConnectionError):  # set on the answer instead
                    self._process.stdin.write(pack_frame(header, body))
                    await self._process.stdin.drain()
            return await answer
        finally:
            self._pending.pop(header["id"], None)


def count_answer(model: str, answer: Header) -> None:
    """Update the metrics with the header of an answer."""
    FOUND.labels(model).inc(answer["count"])
    BATCH_IMAGES.labels(model).observe(answer["batch"])
    for stage, milliseconds in answer["milliseconds"].items():
        STAGE_SECONDS.labels(model, stage).observe(milliseconds / 1e3)
