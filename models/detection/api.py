"""Trained weights in a program of one's own: images -> results. docs/en/api.md shows how."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from duet.models.detection.settings import configured, detector_of
from duet.models.inference.predictor import class_names_of, with_size
from duet.utils.cli.flags import whole_from
from duet.utils.data.image.letterbox import FILL
from duet.utils.detect.config import DetectConfig, call_config, whole
from duet.utils.detect.media.finding import file_source, find_sources
from duet.utils.detect.media.image_file import GivenImage, as_list
from duet.utils.detect.media.source import Source
from duet.utils.detect.pipeline.background import StageSeconds, num_threads
from duet.utils.detect.pipeline.reading import Read, Reader
from duet.utils.detect.results.image_result import ImageResult
from duet.utils.detect.results.of_task import RESULTS
from duet.utils.detect.tracker import SourceTrackers
from duet.utils.optional import import_optional
from duet.utils.text import printable
from duet.utils.weights.detecting import Weights

log = logging.getLogger("detect")


class TrainedDetector:
    """Trained weights on a device, ready to detect; made by `duet.load`.

    Threads may share one. What is found in an image depends neither on other threads nor, with
    batch=1, on the other images given.

    The arguments of a call that are numbers are those of detect.py's flags, with their defaults:

    - size: long side of the images as the network sees them, pixels; a multiple of `stride`. None
      for 640, of a classifier for what it was trained at; an exported file of one size has its
      own.
    - conf: the lowest score.
    - iou: the overlap above which the worse of two boxes of a class is dropped.
    - max_det: at most so many detections per image.
    - classes: detect only these classes, by number; None for all.
    - agnostic: a box removes overlapping boxes of all classes.
    - augment: look at each image in three ways (test-time augmentation).
    - tile: of an image larger than this many pixels, look at tiles of this side too; 0: do not.
    - overlap: of neighbouring tiles, a fraction of `tile`; None for detect.py's default.
    - resize: "linear" as YOLOv5, or "area": averages of all pixels, where an image shrinks.
    - batch: so many images, or tiles, at a time go through the network. A GPU gains; rounding may
      differ.

    Attributes:
        class_names: the name of each class, by number.
        device: "cpu" or "cuda:0".
        stride: pixels that `size` must be a multiple of.
    """

    def __init__(
        self,
        weights: Sequence[Weights],
        device: str,
        half: bool = False,
        max_pixels: int | None = None,
    ) -> None:
        self._weights, self._detector = weights, detector_of(weights, device, half)
        self.device, self.stride = self._detector.device, self._detector.predictor.stride
        self.class_names = class_names_of(weights[0], self._detector.head.num_classes)
        self._max_pixels = max_pixels or DetectConfig.max_pixels

    def __call__(self, images: Any, **options: Any) -> list[ImageResult]:
        """Return a list with what is found in each image; of one image, a list of one.

        Args:
            images: a file name, the bytes of an image file, a NumPy array (H, W, 3), (H, W, 4) or
                (H, W) of uint8 in RGB order, a PIL image; a list of any of them, whatever their
                sizes; or an array (B, H, W, 3).
            options: the arguments above.

        Raises:
            UserError: a `ValueError` that names what is wrong: an argument, or the image that
                cannot be read.
        """
        config = self._config(**options)
        given = enumerate(as_list(images))
        frames = [GivenImage(image, index, self._max_pixels).frame() for index, image in given]
        detector = configured(self._detector, config)
        results: list[ImageResult] = []
        for start in range(0, len(frames), config.batch_size):
            batch_frames = frames[start : start + config.batch_size]
            found = detector.detect([frame.image for frame in batch_frames])
            results += [
                RESULTS[detector.head.task.name].of(frame, one, self.class_names)
                for frame, one in zip(batch_frames, found, strict=True)
            ]
        return results

    def stream(
        self, source: Any, vid_stride: int = 1, track: bool = False, **options: Any
    ) -> Iterator[ImageResult]:
        """Yield what is found in each image or frame, in order, with a few batches in memory.

        While the network computes, threads read what comes next; they end with the generator. An
        image that cannot be read is named in a warning of the log "detect" and left out, as
        detect.py does.

        Args:
            source: what --source takes: a video, folder, pattern, list file, camera or URL. Or
                images as a call takes them, and names of videos: a list, or what yields them. Of
                what yields them no more is taken than the batch of the next result.
            vid_stride: of videos, take every n-th frame.
            track: number the objects of each video, in `Result.track_ids`; images that are no
                frames of a video count as one.
            options: those of a call.

        Raises:
            UserError: as a call; of what can be known then, before the first result is asked for.
        """
        config = self._config(track=track, **options)
        stride = whole("vid_stride", vid_stride)
        whole_from(1)("vid_stride", stride)
        if track:
            import_optional("trackers", "track=True")
        if isinstance(source, (str, os.PathLike)):
            name = os.fsdecode(source)
            return self._stream(find_sources(name, self._max_pixels, stride), config)
        if hasattr(source, "__next__"):
            # Its next image may wait for a result, or be written over this one.
            return self._stream(self._sources(source, stride), config, ahead=0)
        return self._stream(self._sources(as_list(source), stride), config)

    def warm_up(self, size: int | None = None) -> None:
        """Detect in a grey square once, so that the first real image does not wait for set-up."""
        side = self._config(size=size).image_size
        self(np.full((side, side, 3), FILL, np.uint8), size=size)

    def _sources(self, images: Iterable[Any], stride: int) -> Iterator[Source]:
        """Yield images, and videos among them, as sources."""
        for index, image in enumerate(images):
            if isinstance(image, (str, os.PathLike)):
                yield file_source(os.fsdecode(image), self._max_pixels, stride)
            else:
                yield GivenImage(image, index, self._max_pixels)

    def _stream(
        self,
        sources: Iterable[Source],
        config: DetectConfig,
        ahead: int | None = None,
    ) -> Iterator[ImageResult]:
        """Yield what is found in the frames of sources; name those that give none, or no more."""
        detector = configured(self._detector, config)
        trackers = SourceTrackers(config.confidence_threshold, config.class_agnostic)
        size = config.batch_size
        with (
            Reader(detector.views, size, num_threads(), StageSeconds(), ahead) as reader,
            closing(reader.batches(sources)) as batches,
        ):
            for batch in batches:
                rows = iter(detector.predict([v for read in batch for v in read.prepared or ()]))
                for read in batch:
                    if read.frame is None:
                        _warn(read)
                        continue
                    found = detector.finish(read.prepared, [next(rows) for _ in read.prepared])
                    ids = None
                    if config.track:
                        found, ids = trackers.update(found, read.frame, read.source.rate)
                    yield RESULTS[detector.head.task.name].of(
                        read.frame, found, self.class_names, ids
                    )

    def _config(self, **options: Any) -> DetectConfig:
        config = call_config(len(self.class_names), **options)
        config.refuse(self._detector.head.task.refused)
        return with_size(config, self._detector.predictor, self._weights)


def _warn(read: Read) -> None:
    what = "it" if read.source.kind == "image" else "what follows"
    name = printable(str(read.source.name))
    log.warning("%s: %s; %s is left out", name, read.problem, what)
