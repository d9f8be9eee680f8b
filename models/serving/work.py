"""One request in the worker, from its bytes to its answer, and how long each stage took.

Before: `link.py` received it. After: `worker.py` passes it from thread to thread.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from models.inference.image_detector import ImageDetector
from utils.data.image.view import View
from utils.media.frame import Frame
from utils.serve.messages import Query

STAGES = ("wait", "decode", "network", "finish")
TOTAL = "total"


class GivenUpError(Exception):
    """Nobody waits for the answer of a request any more."""


class Work:
    """A request under way.

    Attributes:
        content: the image file; empty once it is decoded.
        answer: a key of `MEDIA_TYPES`.
        is_large: the image has more than `LARGE_PIXELS`; one such is worked on at a time.
        detector: with the settings of the request.
        frame, view: of the image, once it is decoded.
        rows: what the network says of the view.
        batch: images that went through the network together, this one among them.
        is_given_up: nobody waits for its answer any more.
        ended: it is answered.
    """

    detector: ImageDetector
    frame: Frame
    view: View
    rows: Any
    batch: int

    def __init__(
        self, number: int, content: bytes, query: Query, answer: str, is_large: bool = False
    ) -> None:
        self.number, self.content, self.query, self.answer = number, content, query, answer
        self.is_large = is_large
        self.is_given_up = False
        self.ended = threading.Event()
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._since = time.perf_counter()

    def require_wanted(self) -> None:
        """Raise GivenUpError if the next stage would be for nobody."""
        if self.is_given_up:
            raise GivenUpError

    def spent(self, stage: str) -> None:
        """Count the time since the last call as that of a stage."""
        now = time.perf_counter()
        self._seconds[stage] += now - self._since
        self._since = now

    @property
    def milliseconds(self) -> dict[str, float]:
        """By stage, and `TOTAL`; to the microsecond."""
        seconds = {**self._seconds, TOTAL: sum(self._seconds.values())}
        return {stage: round(1000 * value, 3) for stage, value in seconds.items()}

    def like(self) -> tuple[tuple[int, int], float]:
        """Return what requests share that can go through the network together."""
        return self.view.placement.input_size, self.query.conf
