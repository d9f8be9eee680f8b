"""Python API for detection with trained weights; see docs/en/api.md."""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from duet.models.detect.pipeline import finished
from duet.models.detect.settings import NotCopied, configured, detector_of
from duet.models.inference.predictor import input_size
from duet.utils.cli.flags import whole_from
from duet.utils.cli.run_config import whole
from duet.utils.detect.config import OPTIONS, DetectConfig, call_config
from duet.utils.detect.media.finding import file_source, find_sources
from duet.utils.detect.media.image_file import GivenImage, as_list, read_image
from duet.utils.detect.media.source import Source
from duet.utils.detect.pipeline.threads import Read, Reader, num_threads
from duet.utils.detect.results.image_result import ImageResult
from duet.utils.detect.tracker import SourceTrackers
from duet.utils.optional import import_optional
from duet.utils.text import count, printable
from duet.utils.weights.load import Weights

CALL_OPTIONS = {*OPTIONS, "classes"}

log = logging.getLogger("detect")


class TrainedDetector(NotCopied):
    """Trained weights on a device, ready to detect; created by `duet.load`.

    It is thread-safe. An image's detections do not depend on other threads or, with batch=1, on
    the other images.

    Options of a call, the same as detect.py's flags, with the same defaults:

    - size: long side of the network input in pixels, a multiple of `stride`. None for the training
      size; if the weights do not store it, for 640, or 224 for classifiers.
    - conf: lowest score.
    - iou: overlap above which the lower-scoring of two boxes of a class is dropped.
    - max_det: maximum detections per image.
    - classes: numbers or names of the classes to detect; None for all.
    - agnostic: boxes suppress overlapping boxes of all classes.
    - augment: test-time augmentation with three views per image.
    - tile: also detect in tiles of this many pixels if the image is larger; 0: off.
    - overlap: overlap of neighbouring tiles as a fraction of `tile`; None for detect.py's default.
    - visualize: make a heat map of where the network looks, in `heatmap` of each result: True for
      the last layer before the head, or a layer's number.
    - batch: images or tiles per forward pass. Faster on a GPU; rounding may differ.

    Attributes:
        class_names: class names by number.
        device: "cpu" or "cuda:0".
        stride: `size` must be a multiple of this many pixels.
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
        self.class_names = self._detector.class_names
        self._max_pixels = max_pixels or DetectConfig.max_pixels

    def __setattr__(self, name: str, value: object) -> None:
        if name in CALL_OPTIONS:  # `model.conf = 0.5` is how YOLOv5's hub models take them
            raise AttributeError(f"{name} is an option of a call: detector(images, {name}=...)")
        super().__setattr__(name, value)

    @property
    def names(self) -> dict[int, str]:
        return dict(enumerate(self.class_names))

    def __repr__(self) -> str:
        classes = count(len(self.class_names), "class", "classes")
        task = self._detector.head.task.name
        return f"TrainedDetector({task}, {classes}, on {self.device}, stride {self.stride})"

    def __call__(self, images: object, **options: Any) -> list[ImageResult]:
        """Return a list with the result for each image, even for a single one.

        Args:
            images: file name, bytes of an image file, uint8 NumPy array (H, W, 3), (H, W, 4) or
                (H, W) in RGB order, or PIL image; a list of these in any sizes; or an array
                (B, H, W, 3).
            options: see the class.

        Raises:
            UserError: a `ValueError` naming the invalid argument or unreadable image.
        """
        config = self._config(**options)
        given = enumerate(as_list(images))
        frames = [read_image(image, index, self._max_pixels) for index, image in given]
        detector = configured(self._detector, config)
        results: list[ImageResult] = []
        for start in range(0, len(frames), config.batch_size):
            batch = frames[start : start + config.batch_size]
            views = [detector.views(frame.image) for frame in batch]
            rows = detector.predict_images(views)
            results += map(partial(finished, detector), batch, views, rows)
        return results

    def stream(
        self, source: Any, vid_stride: int = 1, track: bool = False, **options: Any
    ) -> Iterator[ImageResult]:
        """Yield the result of each image or frame in order, with a few batches in memory.

        An unreadable image is skipped with a warning in the log "detect", as in detect.py.

        Args:
            source: as for --source, or a list or iterator of images, as for a call, and of video
                names. An iterator is read only up to the batch of the next result.
            vid_stride: use every n-th frame of videos.
            track: assign track IDs to the objects of each video, in `Result.track_ids`; separate
                images count as one video.
            options: as for a call.
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
            # The iterator may wait for a result, or reuse its image buffer.
            return self._stream(self._sources(source, stride), config, ahead=0)
        return self._stream(self._sources(as_list(source), stride), config)

    def _sources(self, images: Iterable[object], stride: int) -> Iterator[Source]:
        for index, image in enumerate(images):
            if isinstance(image, (str, os.PathLike)):
                yield file_source(Path(os.fsdecode(image)), self._max_pixels, stride)
            else:
                yield GivenImage(image, index, self._max_pixels)

    def _stream(
        self,
        sources: Iterable[Source],
        config: DetectConfig,
        ahead: int | None = None,
    ) -> Iterator[ImageResult]:
        detector = configured(self._detector, config)
        track = None
        if config.track:
            track = SourceTrackers(config.confidence_threshold, config.class_agnostic).update
        size = config.batch_size
        with (
            Reader(detector.views, size, num_threads(), ahead) as reader,
            closing(reader.batches(sources)) as batches,
        ):
            for batch in batches:
                rows = detector.predict_images([read.prepared for read in batch])
                for read, own in zip(batch, rows, strict=True):
                    if read.frame is None:
                        _warn(read)
                        continue
                    given = read.frame, read.prepared, own, track, read.source.rate
                    yield finished(detector, *given)

    def _config(self, **options: Any) -> DetectConfig:
        config = call_config(self.class_names, **options)
        config.refuse(self._detector.head.task.refused)
        if config.image_size is not None:
            input_size(config.image_size, self._detector.predictor, self._weights)
        return config


def _warn(read: Read) -> None:
    skipped = "skipped" if read.source.kind == "image" else "the rest is skipped"
    name = printable(str(read.source.name))
    log.warning("%s: %s; %s", name, read.problem, skipped)
