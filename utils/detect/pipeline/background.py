"""Threads that work beside the network: how many, how long their stages take, and a writer."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

from duet.backend.cores import cores_of_rank

MOST_THREADS = 8  # per kind; a faster GPU needs several processes
NICENESS = 5
MOST_BYTES = 1 << 28  # of images that wait, apart from one that is larger alone
STAGES = ("decode", "network", "finish", "write")
Done = TypeVar("Done")


def num_threads() -> int:
    """Return how many threads to decode in, and as many to write in."""
    return min(cores_of_rank(), MOST_THREADS)


def background_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads give way to those that run the network."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=_give_way)


def _give_way() -> None:
    """Lower the priority of this thread; Linux has one for each thread of a process."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):  # a sandbox may forbid it: it is slower, not wrong
        niceness = os.getpriority(os.PRIO_PROCESS, thread) + NICENESS
        os.setpriority(os.PRIO_PROCESS, thread, niceness)


class StageSeconds:
    """Seconds by stage; threads share it: `with seconds("decode"): ...`.

    Stages run side by side, so their sum may be more than the time that passed.
    """

    def __init__(self) -> None:
        self.by_stage = dict.fromkeys(STAGES, 0.0)
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            with self._lock:
                self.by_stage[stage] += spent


class Writer(Generic[Done]):
    """Runs work in threads and reports what it returns, in order, in the caller's thread.

    A context manager. Its end waits for all work; after an exception, for what has begun, and
    what has not begun is dropped: what was reported is then a beginning of the whole.
    """

    def __init__(self, report: Callable[[Done], None], threads: int, most: int) -> None:
        """Make a writer.

        Args:
            report: called with what the work returned, in the order of `add`.
            most: pieces of work that may be under way when `add` returns.
        """
        self._report, self._most = report, most
        self._any_order = background_pool(threads, "write")
        self._in_turn = background_pool(1, "write in turn")
        self._pending: deque[tuple[Future[Done], int]] = deque()

    def add(self, work: Callable[[], Done], in_turn: bool, num_bytes: int) -> None:
        """Have work done, and report older work; raise what that raised.

        Args:
            in_turn: after all work before it that is done in turn too, as frames of a video are.
            num_bytes: that the work keeps in memory.
        """
        pool = self._in_turn if in_turn else self._any_order
        self._pending.append((pool.submit(work), num_bytes))
        while len(self._pending) > self._most or sum(x[1] for x in self._pending) > MOST_BYTES:
            self._report_oldest()

    def __enter__(self) -> Writer[Done]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            while kind is None and self._pending:
                self._report_oldest()
        finally:
            for pool in (self._any_order, self._in_turn):
                pool.shutdown(cancel_futures=True)
            while self._pending and _succeeded(self._pending[0][0]):
                self._report_oldest()

    def _report_oldest(self) -> None:
        done = self._pending[0][0].result()
        self._pending.popleft()
        self._report(done)


def _succeeded(future: Future[Done]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
