"""What was found in a frame is finished and written in threads, and reported in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from utils.pipeline.background import MOST_BYTES, background_pool

Done = TypeVar("Done")


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
