"""Sources -> batches of frames, read ahead in threads, in the order of the sources."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack
from functools import partial
from itertools import groupby, repeat
from typing import Any, NamedTuple

import numpy as np

from duet.utils.detect.media.source import BrokenSourceError, Frame, Source
from duet.utils.detect.pipeline.background import MOST_BYTES, StageSeconds, background_pool


class Read(NamedTuple):
    """A frame of a source, or why the source gives none."""

    source: Source
    frame: Frame | None
    prepared: Any = None  # what the network takes of the frame
    problem: str = ""

    @property
    def num_bytes(self) -> int:
        """Bytes of the image."""
        return 0 if self.frame is None else self.frame.image.nbytes


ReadTask = Callable[[], Read | None]


class Reader:
    """Reads sources in threads, a batch and a few frames ahead; a context manager.

    Several images are read at once, a video in one thread, live sources in one thread each. A
    batch has frames of one kind. Unless they are live, only the sources decide which those are.
    """

    def __init__(
        self,
        prepare: Callable[[np.ndarray], Any],
        batch_size: int,
        threads: int,
        seconds: StageSeconds,
        ahead: int | None = None,
    ) -> None:
        """Make a reader.

        Args:
            prepare: called in the threads with each image (H, W, 3) uint8 RGB.
            batch_size: frames per batch, at most; fewer if they are large.
            threads: that read images.
            seconds: stage times; reading is the stage "decode".
            ahead: images and frames that are read before they are asked for, fewer if they are
                large; None for a batch and one more a thread.
        """
        self._prepare, self._batch_size, self._seconds = prepare, batch_size, seconds
        self._ahead = batch_size + threads if ahead is None else ahead
        self._images = background_pool(threads, "images")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._images.shutdown(cancel_futures=True)

    def batches(self, sources: Iterable[Source]) -> Generator[list[Read], None, None]:
        """Yield what is read; a source that breaks is an entry of its own. To be closed."""
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
        """Yield what tasks read, up to None, while those behind are under way.

        How many are depends on how large the last one was; the first is read alone.
        """
        pending: deque[Future[Read | None]] = deque()
        remaining = iter(tasks)

        def submit(most: int) -> None:
            while len(pending) < most and (task := next(remaining, None)):
                pending.append(pool.submit(task))

        with ExitStack() as stack:
            stack.callback(lambda: [future.cancel() for future in pending])
            while True:
                submit(1)
                read = pending.popleft().result() if pending else None
                if read is None:
                    return
                submit(min(self._ahead, max(1, MOST_BYTES // max(1, read.num_bytes))))
                yield read

    def _read_image(self, source: Source) -> Read:
        read = self._next(source, source.frames())
        return read or Read(source, None, problem="holds no image")

    def _next(self, source: Source, frames: Iterator[Frame]) -> Read | None:
        """Read the next frame; None behind the last one."""
        with self._seconds("decode"):
            try:
                frame = next(frames, None)
            except BrokenSourceError as error:
                return Read(source, None, problem=str(error))
            return frame and Read(source, frame, self._prepare(frame.image))

    def _read_video(self, source: Source) -> Iterator[Read]:
        with ExitStack() as stack:
            pool = stack.enter_context(background_pool(1, "video"))
            stack.callback(source.close)  # its thread may wait for the next frame
            yield from self._in_order(pool, repeat(partial(self._next, source, source.frames())))

    def _read_live(self, sources: Sequence[Source]) -> Iterator[list[Read]]:
        """Yield what the sources have just shown; none waits for another."""
        with ExitStack() as stack:
            pool = stack.enter_context(background_pool(len(sources), "live"))
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
