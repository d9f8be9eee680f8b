"""The work of detect.py: read, predict and write frames concurrently.

While the network computes a batch in a lane, threads read the next and write the previous one. On a
CPU each lane computes whole batches on its share of the cores, because threads of one operation
wait for each other: YOLOv5n at 640 px on two cores takes 10 % less time per image. On a GPU one
batch is copied and queued while the results of another are awaited.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from duet import backend
from duet.models.detect.settings import make_detector
from duet.models.heads.base import Candidates
from duet.models.inference.image_detector import ImageDetector
from duet.utils.data.image.letterbox import View
from duet.utils.detect.config import DetectConfig, Drawing
from duet.utils.detect.media.finding import are_several
from duet.utils.detect.media.source import Frame, Source
from duet.utils.detect.pipeline.report import Done, RunReport, show_in_window
from duet.utils.detect.pipeline.threads import Read, Reader, Writer, num_threads
from duet.utils.detect.results.image_result import ImageResult
from duet.utils.detect.results.run_files import Place, RunFiles
from duet.utils.detect.tracker import SourceTrackers
from duet.utils.errors import UserError
from duet.utils.files.run_folder import create_run_folder
from duet.utils.text import say
from duet.utils.weights.load import Weights

Predicted = Future[tuple[list[list[Candidates]], float]]
Finished = tuple[Done, Place | None]
Track = Callable[[Any, Frame, Fraction | None], tuple[Any, np.ndarray]]

log = logging.getLogger("detect")


class Lanes(ThreadPoolExecutor):
    """Thread pool that divides the cores; an exception cancels work that has not started."""

    def __init__(self, number: int) -> None:
        self._host_threads = backend.device.host_threads()
        threads_per_lane = max(1, self._host_threads // number)
        super().__init__(number, "network", backend.device.set_host_threads, (threads_per_lane,))

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.shutdown(cancel_futures=kind is not None)
        backend.device.set_host_threads(self._host_threads)  # for threads that start later


@dataclass(frozen=True)
class Pipeline:
    """Detects in sources and reports each frame in source order, for any number of threads.

    Attributes:
        files: writes the results; None to write nothing.
        report: called in the caller's thread for each written frame, in order.
        track: maps detections, frame and frame rate to the kept detections and their IDs.
        threads: number of reader threads, and of writer threads.
    """

    detector: ImageDetector
    files: RunFiles | None
    report: Callable[[Done], None]
    batch_size: int = 1
    track: Track | None = None
    threads: int = field(default_factory=num_threads)

    def run(self, sources: Iterable[Source]) -> None:
        most = self.batch_size * (self.detector.lanes + 1) + self.threads
        with (
            Reader(self.detector.views, self.batch_size, self.threads) as reader,
            closing(reader.batches(sources)) as batches,
            Writer(self._end, self.threads, most) as writer,
            Lanes(self.detector.lanes) as lanes,
        ):
            for batch in batches:
                predicted = lanes.submit(self._predict, batch)
                for index, read in enumerate(batch):
                    in_turn = self.track is not None or read.source.kind != "image"
                    writer.add(self._work(read, predicted, index), in_turn, read.num_bytes)

    def _predict(self, batch: Sequence[Read]) -> tuple[list[list[object]], float]:
        """Return the candidates of each view of each frame, and the ms per frame."""
        start = time.perf_counter()
        rows = self.detector.predict_images([read.prepared for read in batch])
        return rows, 1000 * (time.perf_counter() - start) / len(batch)

    def _work(self, read: Read, predicted: Predicted, index: int) -> Callable[[], Finished]:
        if read.frame is None:
            return lambda: (Done(read.source, None, read.problem), None)
        place = None
        if self.files is not None:
            place = self.files.reserve(read.frame, read.source.rate)
        return partial(self._finish, read, read.frame, predicted, index, place)

    def _finish(
        self, read: Read, frame: Frame, predicted: Predicted, index: int, place: Place | None
    ) -> Finished:
        rows, milliseconds = predicted.result()
        track, rate = self.track, read.source.rate
        result = finished(self.detector, frame, read.prepared, rows[index], track, rate)
        if self.files is not None and place is not None:
            self.files.write(result, place)
        size = read.prepared[0].placement.input_size
        return Done(read.source, result, input_size=size, milliseconds=milliseconds), place

    def _end(self, finished: Finished) -> None:
        done, place = finished
        if self.files is not None and done.result is not None and place is not None:
            self.files.append(done.result, place)
        self.report(done)


def finished(
    detector: ImageDetector,
    frame: Frame,
    views: Sequence[View],
    rows: Sequence[object],
    track: Track | None = None,
    rate: Fraction | None = None,
) -> ImageResult:
    found, ids = detector.finish(views, rows), None
    if track is not None:
        found, ids = track(found, frame, rate)
    kind = detector.head.task.result.load()
    result: ImageResult = kind(
        frame, found, detector.class_names, ids, detector.heatmap(frame.image)
    )
    return result


def run_detection(
    config: DetectConfig, sources: Sequence[Source], weights: Sequence[Weights]
) -> int:
    detector = make_detector(config, weights, are_several(sources, config.tiling))
    folder = create_run_folder(config.project, config.name, config.exist_ok)
    report = RunReport(sources, config.source)
    track = None
    if config.track:
        track = SourceTrackers(config.confidence_threshold, config.class_agnostic).update
    log.info("weights: %s; source: %s", " ".join(config.weights), report.sources)
    add = with_window(report.add, config.drawing) if config.view_images else report.add
    alike = all(source.kind != "image" for source in sources)  # the frames of a video
    try:
        with (
            report.progress,
            RunFiles(folder, config, detector.class_names) as files,
            backend.device.shapes_repeat(detector.device, alike),
        ):
            Pipeline(detector, files, add, config.batch_size, track).run(sources)
    except (KeyboardInterrupt, SystemExit):
        say(f"stopped after {report.done}; results so far saved to {folder}")
        raise
    if not report.num_frames:
        with suppress(OSError):  # labels of an earlier run may be in it
            folder.rmdir()
        raise UserError(f"--source {report.sources}: no image or video could be read")
    report.print_totals()
    say(f"results in {folder}")
    return report.num_broken


def with_window(report: Callable[[Done], None], drawing: Drawing) -> Callable[[Done], None]:
    """Return `report`, extended to show the drawn image; q acts as Ctrl-C."""

    def report_and_show(done: Done) -> None:
        report(done)
        if done.result is not None and show_in_window(done.result.plot(*drawing)):
            raise KeyboardInterrupt

    return report_and_show
