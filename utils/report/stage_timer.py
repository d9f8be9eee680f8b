"""Time spent in each stage of a training step, for results.csv and benchmarks."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping

from duet import backend
from duet.backend.checks import CPU

STAGES = (
    "data_wait",
    "to_device",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "ema",
    "validation",
)
# Unread device marks to keep: a few dozen steps, which are done long before they are read.
UNREAD_STAGES = 256


class StageTimer:
    """Time of each stage since creation; `with timer("forward"): ...`.

    A stage lasts from the device's queue position on entry until the device has done its work.
    Marks are read much later, so that timing does not block the host.
    """

    def __init__(self, device: str = CPU, spent: Mapping[str, float] | None = None) -> None:
        """Start a timer now or, for a resumed epoch, continue from a `state()`."""
        self._device = device
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._unread: deque[tuple[str, object, object]] = deque()
        self._start = time.perf_counter()
        if spent is not None:
            self._seconds = {stage: spent.get(stage, 0.0) for stage in STAGES}
            self._start -= spent["total"]

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = backend.device.mark(self._device)
        yield
        self._unread.append((name, start, backend.device.mark(self._device)))
        if len(self._unread) > UNREAD_STAGES:
            self._read_oldest()

    def state(self) -> dict[str, float]:
        """Return the seconds of each stage, once the device has done them, and "total"."""
        while self._unread:
            self._read_oldest()
        return {**self._seconds, "total": self.total()}

    def _read_oldest(self) -> None:
        stage, start, end = self._unread.popleft()
        self._seconds[stage] += backend.device.seconds_between(start, end)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds["data_wait"] += time.perf_counter() - start

    def total(self) -> float:
        return time.perf_counter() - self._start
