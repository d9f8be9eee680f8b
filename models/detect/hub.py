"""`torch.hub.load` models with the names and shapes of the public YOLOv5's.

As in the public wrapper, all images of a call share one input shape, each as large as it fits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from duet.backend import nn
from duet.models.detect.hub_results import HubResults
from duet.models.detect.settings import NotCopied, configured, detector_of
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictor import class_names_of, input_size, warn_of_other_size
from duet.utils.data.image.letterbox import fit_letterbox, letterbox, resize_linear
from duet.utils.data.image.view import View
from duet.utils.detect.config import DetectConfig, call_config
from duet.utils.detect.media.image_file import as_list, read_image
from duet.utils.detect.media.source import Frame
from duet.utils.errors import UserError
from duet.utils.files.model_yamls import shipped_model
from duet.utils.image_limits import MAX_PIXELS
from duet.utils.weights.checkpoint import Checkpoint, Header
from duet.utils.weights.load import Weights

FEWEST_ROWS = 5  # arrays with fewer rows are channels-first


class HubModel(NotCopied):
    """Model returned by `torch.hub.load`; call it with images.

    Attributes:
        conf, iou, classes, agnostic, multi_label, max_det: detection settings; writable.
        names: class names by number.
        stride: the sides of the network input are multiples of this many pixels.
        device: "cpu" or "cuda:0".
    """

    def __init__(self, weights: Sequence[Weights], device: str) -> None:
        self.conf = DetectConfig.confidence_threshold
        self.iou = DetectConfig.iou_threshold
        self.max_det = DetectConfig.max_detections
        self.classes: Sequence[int | str] | None = None
        self.agnostic = False
        self.multi_label = False
        self._weights = weights
        self._place(device, half=False)

    def _place(self, device: str, half: bool) -> None:
        self._detector, self._half = detector_of(self._weights, device, half), half
        head = self._detector.head
        if "hub" in head.task.refused:
            raise UserError(head.task.refused["hub"])
        self.device, self.stride = self._detector.device, self._detector.predictor.stride
        self._class_names = class_names_of(self._weights[0], head.num_classes)
        self.names = dict(enumerate(self._class_names))

    def __call__(
        self,
        ims: Any,
        size: int | Sequence[int] | None = None,
        augment: bool = False,
        profile: bool = False,
    ) -> HubResults:
        """Detect in images.

        Args:
            ims: an image or a list of them, see docs/en/api.md; arrays are RGB.
            size: long side of the network input in pixels; the larger one of (height, width).
                None for the training size, or 640 if the weights do not store it.
            augment: test-time augmentation with three views per image.
            profile: no effect: the results always have their times.

        Raises:
            UserError: an unusable image or setting.
        """
        start = time.perf_counter()
        given = as_list(ims)
        frames = [_frame(image, index) for index, image in enumerate(given)]
        long_side = self._detector.image_size if size is None else _long_side(size)
        detector = self._configured(long_side, len(frames), augment)
        fixed_size = detector.predictor.fixed_size
        images = [frame.image for frame in frames]
        views = hub_views(images, long_side, self.stride, fixed_size)
        ready = time.perf_counter()
        rows = detector.predict(views)
        predicted = time.perf_counter()
        results: list[Any] = [  # boxes only: see `Task.refused`
            detector.head.task.result.load()(
                frame, detector.finish([view], [found]), self._class_names
            )
            for frame, view, found in zip(frames, views, rows, strict=True)
        ]
        end = time.perf_counter()
        milliseconds = [
            1000 * seconds / max(len(views), 1)
            for seconds in (ready - start, predicted - ready, end - predicted)
        ]
        shape = (len(views), 3, *(views[0].placement.input_size if views else (0, 0)))
        return HubResults(results, milliseconds, shape)

    def to(self, device: Any) -> HubModel:
        """Move to "cpu", "cuda", "cuda:1", 1, or an object that prints so; return the model."""
        name = str(device)
        self._place("0" if name == "cuda" else name, self._half)
        return self

    def cpu(self) -> HubModel:
        """Move to the CPU."""
        return self.to("cpu")

    def cuda(self, device: int = 0) -> HubModel:
        """Move to a GPU."""
        return self.to(device)

    def eval(self) -> HubModel:
        """Return the model, which never trains."""
        return self

    def half(self) -> HubModel:
        """Compute in half precision if the device supports it; log a line if not."""
        self._place(self.device, half=True)
        return self

    def float(self) -> HubModel:
        """Compute in float32."""
        self._place(self.device, half=False)
        return self

    def _configured(self, long_side: int, num_images: int, augment: bool) -> ImageDetector:
        """Return the detector with the current settings."""
        config = call_config(
            self._class_names,
            size=long_side,
            conf=self.conf,
            iou=self.iou,
            max_det=self.max_det,
            classes=self.classes,
            agnostic=self.agnostic,
            augment=augment,
            batch=max(num_images, 1),
        )
        if self._detector.predictor.fixed_size is not None:
            input_size(long_side, self._detector.predictor, self._weights)
        warn_of_other_size(long_side, self._weights)
        return configured(self._detector, config, multi_label=bool(self.multi_label))


def hub_views(
    images: Sequence[np.ndarray],
    long_side: int,
    stride: int,
    fixed_size: tuple[int, int] | None = None,
) -> list[View]:
    """Fit each image (H, W, 3) as large as possible into one input shape for all.

    The shape holds every image with its long side at `long_side`, rounded up to the stride,
    unless the size is fixed.
    """
    if not images:
        return []
    scaled = [
        [int(side * long_side / max(image.shape[:2])) for side in image.shape[:2]]
        for image in images
    ]
    height, width = (-(-max(1, *sides) // stride) * stride for sides in zip(*scaled, strict=True))
    size = fixed_size or (height, width)
    places = [fit_letterbox(image.shape[:2], size) for image in images]
    return [
        View(letterbox(image, place, resize_linear), place)
        for image, place in zip(images, places, strict=True)
    ]


def _long_side(size: Any) -> int:
    """Return the long side from a number or (height, width)."""
    sides = size if isinstance(size, (list, tuple)) and size else [size]
    return max(call_config((), size=side).image_size or 0 for side in sides)


def _frame(image: Any, index: int) -> Frame:
    """Return an image as a frame whose source is its name in `HubResults.files`."""
    if isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[0] < FEWEST_ROWS:
        image = image.transpose(1, 2, 0)
    frame = read_image(image, index, MAX_PIXELS)
    return frame._replace(source=Path(frame.source).with_suffix(".jpg").name)


def random_weights(name: str, num_classes: int) -> Checkpoint:
    """Return a public model's initial training weights for seed 0."""
    spec = read_model_yaml(shipped_model(name), num_classes)
    model = Detector(spec)
    model.initialize(0)
    arrays = nn.state_arrays(model)
    return Checkpoint(Header(spec.document, class_names=()), arrays, arrays, {})
