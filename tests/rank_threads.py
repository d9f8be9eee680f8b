"""Ranks of a job as threads of a test, with an exact stand-in for the backend's all_gather."""

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from duet.backend.processes import Process
from duet.utils.processes.world import AllGather, World

TIMEOUT = 60  # seconds; a rank that does not take part fails the test
GATHERED_DTYPES = (np.float32, np.float64, np.int64, np.uint8)  # that the backends promise


class RankFailures(Exception):
    """What each rank raised; None of one that did not."""

    def __init__(self, errors: Sequence[BaseException | None]):
        super().__init__(repr(errors))
        self.errors = errors


class _Meeting:
    """Where the arrays of every call of all_gather come together."""

    def __init__(self, world_size: int):
        self._changed = threading.Condition()
        self._calls: list[dict[int, np.ndarray]] = []  # of each, by rank
        self._world_size = world_size
        self._failed = False

    def all_gather_of(self, rank: int) -> AllGather:
        numbers = itertools.count()

        def all_gather(array: np.ndarray) -> list[np.ndarray]:
            assert array.dtype in GATHERED_DTYPES
            number = next(numbers)
            with self._changed:
                self._calls += [{} for _ in range(number + 1 - len(self._calls))]
                arrays = self._calls[number]
                arrays[rank] = array.copy()
                self._changed.notify_all()
                waiting = self._changed.wait_for(
                    lambda: len(arrays) == self._world_size or self._failed, TIMEOUT
                )
            if not waiting or len(arrays) < self._world_size:
                raise RuntimeError("another rank did not take part")
            gathered = [arrays[other].copy() for other in range(self._world_size)]
            assert {other.dtype for other in gathered} == {array.dtype}
            assert {other.shape[1:] for other in gathered} == {array.shape[1:]}
            return gathered

        return all_gather

    def fail(self) -> None:
        """End the waiting for a rank that raised."""
        with self._changed:
            self._failed = True
            self._changed.notify_all()


def run_rank_threads(world_size: int, work: Callable[[World], Any]) -> list[Any]:
    """The results of all ranks; RankFailures when any of them raised."""
    meeting = _Meeting(world_size)

    def run(rank: int) -> tuple[Any, BaseException | None]:
        try:
            return work(World(Process(rank, rank, world_size), meeting.all_gather_of(rank))), None
        except BaseException as error:
            meeting.fail()
            return None, error

    with ThreadPoolExecutor(world_size) as pool:
        outcomes = list(pool.map(run, range(world_size)))
    if any(error for _, error in outcomes):
        raise RankFailures([error for _, error in outcomes])
    return [result for result, _ in outcomes]
