"""Threads in which the network runs, side by side where that is faster.

On a CPU each lane computes whole batches with its part of the cores. The threads of one operation
wait for each other at its end, those of two lanes never do. So YOLOv5n at 640 px on two cores takes
a tenth less time an image, and what decodes and draws beside it no longer holds both cores up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import backend
from backend.checks import CPU
from utils.pipeline.background import MOST_THREADS, runtime_lanes
from utils.weights.detecting import ExportedWeights, Weights

Made = TypeVar("Made")


def num_lanes(device: str, weights: Sequence[Weights] = ()) -> int:
    """Return how many batches to have in the network at once: of weights, on a device."""
    overlap = [one.side_by_side for one in weights if isinstance(one, ExportedWeights)]
    if overlap:
        return runtime_lanes() if all(overlap) else 1
    return min(backend.device.host_threads(), MOST_THREADS) if device == CPU else 1


class Lanes:
    """A pool of threads that share the cores; a context manager.

    Its end waits for all work; after an exception, for what has begun, and the rest is cancelled.
    """

    def __init__(self, number: int) -> None:
        self._threads = backend.device.host_threads()
        of_each = max(1, self._threads // number)
        self._pool = ThreadPoolExecutor(
            number, "network", backend.device.set_host_threads, (of_each,)
        )

    def submit(self, work: Callable[..., Made], *given: Any) -> Future[Made]:
        """Have work done in a lane."""
        return self._pool.submit(work, *given)

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)
        backend.device.set_host_threads(self._threads)  # of threads that begin later
