"""Sources -> batches of frames, read ahead in threads, in the order of the sources.

Before: `utils/media/source.py`. After: `models/inference/pipeline.py`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from utils.media.frame import Frame
from utils.media.source import BrokenSourceError, Source
from utils.pipeline.background import MOST_BYTES, background_pool
from utils.pipeline.stage_seconds import StageSeconds


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
            seconds: of which reading is the stage "decode".
            ahead: images and frames that are read before they are asked for; None for a batch and
                one more a thread. Of a video it is one at least.
        """
        self._prepare, self._batch_size, self._seconds = prepare, batch_size, seconds
        self._ahead = batch_size + threads if ahead is None else ahead
        self._images = background_pool(threads, "images")
        self._waiting_bytes = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._images.shutdown(cancel_futures=True)

    def batches(self, sources: Iterable[Source]) -> Generator[list[Read], None, None]:
        """Yield what is read; a source that breaks is an entry of its own. To be closed."""
        for kind, group in groupby(sources, key=lambda source: source.kind):
            if kind == "image":
                yield from self._batched(self._read_images(group))
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

    def _read_images(self, sources: Iterable[Source]) -> Iterator[Read]:
        pending: deque[tuple[Source, Future[Read | None]]] = deque()
        for source in sources:
            pending.append((source, self._images.submit(self._read_if_room, source)))
            if len(pending) > self._ahead:
                yield self._take(*pending.popleft())
        while pending:
            yield self._take(*pending.popleft())

    def _read_if_room(self, source: Source) -> Read | None:
        """Read an image ahead; None if those that wait are many bytes already."""
        with self._lock:
            if self._waiting_bytes > MOST_BYTES:
                return None
        read = self._read_image(source)
        with self._lock:
            self._waiting_bytes += read.num_bytes
        return read

    def _take(self, source: Source, future: Future[Read | None]) -> Read:
        read = future.result()
        if read is None:
            return self._read_image(source)
        with self._lock:
            self._waiting_bytes -= read.num_bytes
        return read

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
        frames = source.frames()
        with ExitStack() as stack:
            pool = stack.enter_context(background_pool(1, "video"))
            stack.callback(source.close)  # its thread may wait for the next frame
            read = pool.submit(self._next, source, frames).result()
            if read is None:
                return
            yield read
            ahead = max(1, min(self._ahead, MOST_BYTES // max(1, read.num_bytes)))
            pending = deque(pool.submit(self._next, source, frames) for _ in range(ahead))
            stack.callback(lambda: [future.cancel() for future in pending])
            while (read := pending.popleft().result()) is not None:
                pending.append(pool.submit(self._next, source, frames))
                yield read

    def _read_live(self, sources: Sequence[Source]) -> Iterator[list[Read]]:
        """Yield what the sources have just shown; none waits for another."""
        with ExitStack() as stack:
            pool = stack.enter_context(background_pool(len(sources), "live"))
            for source in sources:
                stack.callback(source.close)
            waiting: dict[Future[Read | None], tuple[Source, Iterator[Frame]]] = {}
            todo = [(source, source.frames()) for source in sources]
            while todo or waiting:
                waiting.update({pool.submit(self._next, *one): one for one in todo})
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                reads = {future: read for future in done if (read := future.result()) is not None}
                todo = [one for future in done if (one := waiting.pop(future)) and future in reads]
                yield from self._batched(reads.values())
