"""Seconds that each stage of detecting took, in all threads together.

Before: the stages. After: the last lines of detect.py, benchmarks/detect.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

STAGES = ("decode", "network", "finish", "write")


class StageSeconds:
    """Seconds by stage; threads share it: `with seconds("decode"): ...`.

    Stages run side by side, so their sum may be more than the time that passed.
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            with self._lock:
                self._seconds[stage] += spent

    @property
    def by_stage(self) -> dict[str, float]:
        return dict(self._seconds)
