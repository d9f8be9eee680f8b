"""Sources -> what is found in each of their frames: reading, network and writing side by side.

Before: `image_detector.py`, `utils/pipeline/reading.py`. After: `job.py`. The network runs in the
caller's thread. While it computes a batch, threads read the next one, and finish and write the
last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial

import numpy as np

from models.inference.image_detector import ImageDetector
from utils.media.frame import Frame
from utils.media.source import Source
from utils.pipeline.background import num_threads
from utils.pipeline.reading import Read, Reader
from utils.pipeline.stage_seconds import StageSeconds
from utils.pipeline.totals import Done
from utils.pipeline.writing import Writer
from utils.results.result import Result


class Pipeline:
    """Detects in sources with a detector; `tell` gets each frame in the order of the sources.

    Neither the number of threads nor their pace changes a result. Another batch size may, as far
    as the framework's kernels for it round otherwise.
    """

    def __init__(
        self,
        detector: ImageDetector,
        class_names: tuple[str, ...],
        batch_size: int,
        write: Callable[[Result], None],
        tell: Callable[[Done], None],
        threads: int | None = None,
    ) -> None:
        """Make a pipeline.

        Args:
            write: called in threads, for the frames of a video in their order.
            tell: called in the caller's thread when a frame was written.
            threads: that read images, and as many that write them; None for what the cores allow.
        """
        self.detector, self.class_names, self.batch_size = detector, class_names, batch_size
        self.seconds = StageSeconds()
        self._write, self._tell = write, tell
        self._threads = threads or num_threads()

    def run(self, sources: Iterable[Source]) -> None:
        """Detect in all frames of the sources; raise what a thread raised."""
        threads, most = self._threads, self.batch_size + self._threads
        with (
            Reader(self.detector.views, self.batch_size, threads, self.seconds) as reader,
            closing(reader.batches(sources)) as batches,
            Writer(self._tell, threads, most) as writer,
        ):
            for batch in batches:
                rows = iter(self._predict(batch))
                for read in batch:
                    own = [next(rows) for _ in read.prepared or ()]
                    in_turn = read.source.kind != "image"
                    writer.add(partial(self._finish, read, own), in_turn, read.num_bytes)

    def _predict(self, batch: Sequence[Read]) -> Sequence[np.ndarray]:
        views = [view for read in batch for view in read.prepared or ()]
        with self.seconds("network"):
            return self.detector.predict(views)

    def _finish(self, read: Read, rows: Sequence[np.ndarray]) -> Done:
        if read.frame is None:
            return Done(read.source, None, read.problem)
        result = self._result(read.frame, read, rows)
        with self.seconds("write"):
            self._write(result)
        return Done(read.source, result)

    def _result(self, frame: Frame, read: Read, rows: Sequence[np.ndarray]) -> Result:
        with self.seconds("finish"):
            return Result(frame, self.detector.finish(read.prepared, rows), self.class_names)
