"""Threads beside the network: they read sources ahead and write results, both in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from itertools import groupby, repeat
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from duet.backend.cores import cores_of_rank
from duet.utils.data.image.letterbox import View
from duet.utils.detect.media.source import Frame, Source
from duet.utils.errors import BrokenSourceError

MOST_THREADS = 8  # per kind; a faster GPU needs several processes
MOST_BYTES = 1 << 28  # of images that wait, apart from one that is larger alone
Done = TypeVar("Done")


def num_threads() -> int:
    return min(cores_of_rank(), MOST_THREADS)


class Writer(Generic[Done]):
    """Runs tasks in threads and reports their results, in order of `add`, in the caller's thread.

    A context manager. On exit it waits for all tasks; after an exception only for running ones, so
    that the reported results are the first ones, without a gap.
    """

    def __init__(self, report: Callable[[Done], None], threads: int, most: int) -> None:
        """most: tasks that may be pending when `add` returns."""
        self._report, self._most = report, most
        self._any_order = ThreadPoolExecutor(threads, "write")
        self._in_turn = ThreadPoolExecutor(1, "write in turn")
        self._pending: deque[tuple[Future[Done], int]] = deque()

    def add(self, work: Callable[[], Done], in_turn: bool, num_bytes: int) -> None:
        """Queue a task, and report finished ones; re-raise their exceptions.

        Args:
            in_turn: run it after all earlier tasks with this flag, as for frames of a video.
            num_bytes: memory held by the task.
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
            for future, _ in list(self._pending):  # those done without a gap
                if not future.done() or future.cancelled() or future.exception():
                    break
                self._report_oldest()

    def _report_oldest(self) -> None:
        done = self._pending[0][0].result()
        self._pending.popleft()
        self._report(done)


class Read(NamedTuple):
    source: Source
    frame: Frame | None
    prepared: Sequence[View] = ()  # the network's input for the frame
    problem: str = ""

    @property
    def num_bytes(self) -> int:
        return 0 if self.frame is None else self.frame.image.nbytes


ReadTask = Callable[[], Read | None]


class Reader:
    """Reads sources in threads, a batch and a few frames ahead; a context manager.

    Images are read concurrently, a video in one thread, live sources in one thread each. A batch
    holds frames of one kind; unless these are live, it depends only on the sources.
    """

    def __init__(
        self,
        prepare: Callable[[np.ndarray], list[View]],
        batch_size: int,
        threads: int,
        ahead: int | None = None,
    ) -> None:
        """Create a reader.

        Args:
            prepare: converts an image (H, W, 3) uint8 RGB to the network's input, in the threads.
            batch_size: largest batch size; batches of large images are smaller.
            ahead: largest number of frames to read ahead; None: a batch and one per thread.
        """
        self._prepare, self._batch_size = prepare, batch_size
        self._ahead = batch_size + threads if ahead is None else ahead
        self._images = ThreadPoolExecutor(threads, "images")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._images.shutdown(cancel_futures=True)

    def batches(self, sources: Iterable[Source]) -> Generator[list[Read], None, None]:
        """Yield batches; a broken source is an entry of its own. Close the generator."""
        for kind, group in groupby(sources, key=lambda source: source.kind):
            if kind == "image":
                tasks = (partial(self._read_image, source) for source in group)
                yield from self._batched(self._in_order(self._images, tasks))
            elif kind == "video":
                for source in group:
                    yield from self._batched(self._read_video(source))
            else:
                yield from self._read_live(list(group))

    def _batched(self, reads: Iterable[Read]) -> Iterator[list[Read]]:
        batch: list[Read] = []
        for read in reads:
            batch.append(read)
            if len(batch) == self._batch_size or sum(x.num_bytes for x in batch) > MOST_BYTES:
                yield batch
                batch = []
        if batch:
            yield batch

    def _in_order(self, pool: Executor, tasks: Iterable[ReadTask]) -> Iterator[Read]:
        """Yield the results of tasks up to the first None, while later tasks run.

        The size of the last result limits their number; the first is read alone.
        """
        pending: deque[Future[Read | None]] = deque()
        remaining, most = iter(tasks), 1
        try:
            while True:
                while len(pending) < max(1, most) and (task := next(remaining, None)):
                    pending.append(pool.submit(task))
                read = pending.popleft().result() if pending else None
                if read is None:
                    return
                most = min(self._ahead, max(1, MOST_BYTES // max(1, read.num_bytes)))
                while len(pending) < most and (task := next(remaining, None)):
                    pending.append(pool.submit(task))
                yield read
        finally:
            for future in pending:
                future.cancel()

    def _read_image(self, source: Source) -> Read:
        read = self._next(source, source.frames())
        return read or Read(source, None, problem="holds no image")

    def _next(self, source: Source, frames: Iterator[Frame]) -> Read | None:
        try:
            frame = next(frames, None)
        except BrokenSourceError as error:
            return Read(source, None, problem=str(error))
        return frame and Read(source, frame, self._prepare(frame.image))

    def _read_video(self, source: Source) -> Iterator[Read]:
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(1, "video"))
            stack.callback(source.close)  # its thread may wait for the next frame
            yield from self._in_order(pool, repeat(partial(self._next, source, source.frames())))

    def _read_live(self, sources: Sequence[Source]) -> Iterator[list[Read]]:
        """Yield the newest frames of the sources, which do not wait for each other."""
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(len(sources), "live"))
            waiting: dict[Future[Read | None], ReadTask] = {}
            for source in sources:
                stack.callback(source.close)
                first: ReadTask = partial(self._next, source, source.frames())
                waiting[pool.submit(first)] = first
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                reads = []
                for future in done:
                    task = waiting.pop(future)
                    if read := future.result():
                        reads.append(read)
                        waiting[pool.submit(task)] = task
                yield from self._batched(reads)
