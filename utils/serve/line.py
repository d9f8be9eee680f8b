"""The requests that one model holds: so many at most, and how long the next one should wait."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from utils.serve.failures import RequestError

WEIGHT = 0.1  # of the newest answer in the mean time between answers


class Line:
    """A bounded number of places.

    Attributes:
        taken: requests that are held now.
    """

    def __init__(
        self, places: int, longest_wait: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._places, self._longest, self._clock = places, longest_wait, clock
        self.taken = 0
        self._seconds_each = 0.0  # between two answers while requests wait; 0: not known yet
        self._since = 0.0  # the last answer, or when the line was empty for the last time

    def require_place(self) -> None:
        """Raise RequestError if no place is free."""
        if self.taken >= self._places:
            seconds = self.retry_after()
            raise RequestError(
                429,
                "queue_full",
                f"the model holds {self._places} requests, the most that it may; try again in "
                f"{seconds} s",
                {"Retry-After": str(seconds)},
            )

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place in the block; raise RequestError if none is free."""
        self.require_place()
        if self.taken == 0:
            self._since = self._clock()
        self.taken += 1
        try:
            yield
            self._note_answer()
        finally:
            self.taken -= 1

    def retry_after(self) -> int:
        """Return the whole seconds after which half of the requests held now are answered.

        Half: whoever comes back when one place is free finds it taken by another.
        """
        each = max(self._seconds_each, self._clock() - self._since)
        return math.ceil(min(max(each * math.ceil(self.taken / 2), 1.0), self._longest))

    def _note_answer(self) -> None:
        now = self._clock()
        seconds, self._since = now - self._since, now
        weight = WEIGHT if self._seconds_each else 1
        self._seconds_each += weight * (seconds - self._seconds_each)
