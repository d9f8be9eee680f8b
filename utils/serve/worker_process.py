"""The worker of a model, as the front process sees it.

Before: `messages.py`. After: `models/serving`, in a process of its own.
"""

from __future__ import annotations

from typing import Any

from utils.serve.messages import Answer, Query, WorkerSettings


class WorkerProcess:
    """A process with a model; it is started again when it dies.

    Attributes:
        model: what /v1/model tells: name, task, class_names, image_size, runs_in.
        is_ready: it can answer now.
        restarts: how often it was started again.
        waiting: requests that wait for their answer.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings, self.name = settings, settings.name
        self.model: dict[str, Any] = {}
        self.is_ready, self.restarts, self.waiting = False, 0, 0

    async def start(self) -> None:
        """Start the process; return when it can answer.

        Raises:
            UserError: the weights or the settings cannot be used.
            WorkerError: it died.
        """
        raise NotImplementedError

    async def detect(self, image: bytes, query: Query, answer: str) -> Answer:
        """Return what is found in an image file.

        Args:
            image: the bytes of the file.
            answer: a key of `MEDIA_TYPES`.

        Raises:
            BadImageError: the image cannot be read.
            UserError: a class that the model does not know.
            WorkerLostError: the worker died or hung, twice.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """End the process."""
        raise NotImplementedError
