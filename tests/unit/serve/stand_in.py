"""A server whose models are stand-ins: `python -m tests.unit.serve.stand_in` with its own flags.

A model does what it is named for: "slow" takes SLOW_SECONDS an image, "stuck" never answers, "bad"
finds every image broken, "lost" dies, "failing" cannot be started, "late" starts only when its
weights are there; others answer at once.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from utils.errors import UserError
from utils.processes.command import run_command
from utils.processes.start import start_command
from utils.serve import __main__, app, connections, service
from utils.serve.messages import (
    MEDIA_TYPES,
    Answer,
    BadImageError,
    Query,
    WorkerLostError,
    WorkerSettings,
)

SLOW_SECONDS = 0.3
LARGE_PIXELS = 20_000  # in place of what is large for a real worker
HEAD_SECONDS = 0.6  # for a connection that says nothing
STAGES = {"wait": 0.5, "network": 2.0, "total": 2.5}
CLASSES = ["person", "bicycle", "car"]
dropped = 0  # works that were cancelled


class StandIn:
    """What `WorkerProcess` promises, without a process."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings, self.name = settings, settings.name
        self.model: dict[str, Any] = {}
        self.is_ready, self.restarts, self.waiting = False, 0, 0
        self._one = asyncio.Lock()

    async def start(self) -> None:
        if self.name == "failing":
            raise UserError(f"--weights {self.settings.weights}: no such file")
        while self.name == "late" and not Path(self.settings.weights).exists():
            await asyncio.sleep(0.01)
        self.model = {"name": self.name, "task": "detect", "class_names": CLASSES}
        self.is_ready = True

    async def detect(self, image: bytes, query: Query, answer: str, is_large: bool) -> Answer:
        if self.name == "bad":
            raise BadImageError("broken \x1b[31m data")
        if self.name == "lost":
            raise WorkerLostError("the process ended twice")
        if self.name == "defect":
            raise RuntimeError("a defect")
        if self.name in ("slow", "stuck"):
            await self._slowly()
        told = {"query": vars(query), "bytes": len(image), "model": self.name, "dropped": dropped,
                "is_large": is_large}  # fmt: skip
        body = json.dumps(told).encode() if answer == "json" else b"\xff\xd8 drawn"
        return Answer(body, MEDIA_TYPES[answer], STAGES, 3, 2)

    async def _slowly(self) -> None:
        """Work on one image after the other."""
        global dropped
        try:
            async with self._one:
                await asyncio.sleep(SLOW_SECONDS if self.name == "slow" else 1000)
        except asyncio.CancelledError:
            dropped += 1
            raise

    async def close(self) -> None:
        self.is_ready = False


if __name__ == "__main__":
    start_command()
    service.WorkerProcess = StandIn  # type: ignore[assignment, misc]
    app.LARGE_PIXELS = LARGE_PIXELS
    connections.HEAD_SECONDS, connections.SWEEP_SECONDS = HEAD_SECONDS, 0.05
    run_command(__main__.main)
