"""`torch.hub.load` models with the names and shapes of the public YOLOv5's.

As in the public wrapper, all images of a call share one input shape, each as large as it fits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageShow

from duet.backend import nn, ops
from duet.backend.contract import Tensor
from duet.models.detect.pipeline import finished
from duet.models.detect.settings import NotCopied, configured, detector_of
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictor import input_size, warn_of_other_size
from duet.utils.data.image.letterbox import View, fit_letterbox, letterbox, resize_linear
from duet.utils.detect.config import DetectConfig, call_config
from duet.utils.detect.media.image_file import as_list, read_image
from duet.utils.detect.media.source import Frame
from duet.utils.detect.results.result import CORNERS, Result
from duet.utils.detect.results.run_files import RunFiles
from duet.utils.errors import UserError
from duet.utils.files.model_yamls import shipped_model
from duet.utils.files.run_folder import create_run_folder
from duet.utils.geometry.boxes import xyxy_to_cxcywh
from duet.utils.image_limits import MAX_PIXELS
from duet.utils.text import say
from duet.utils.weights.checkpoint import Checkpoint, Header
from duet.utils.weights.load import Weights

SAVE_DIR = "runs/detect/exp"
CENTRE_AND_SIZE = ("xcenter", "ycenter", "width", "height")
FEWEST_ROWS = 5  # arrays with fewer rows are channels-first


class Tables(NamedTuple):
    """One `pandas.DataFrame` per image, for each box format."""

    xyxy: list[Any]
    xyxyn: list[Any]
    xywh: list[Any]
    xywhn: list[Any]


class HubResults:
    """Results of a call.

    Attributes:
        xyxy: per image a CPU tensor (K, 6) float32: left, top, right, bottom in pixels, score,
            class number; highest score first.
        xywh: the same, with centre and size.
        xyxyn, xywhn: the same, as fractions of the image's width and height.
        pred: `xyxy`.
        ims: the images, (H, W, 3) uint8 RGB; with detections drawn after `render`.
        files: their file names, as used by `save`.
        names: class names by number.
        n: number of images.
        t: milliseconds per image for pre-processing, inference and post-processing.
        s: shape of the network input.
    """

    def __init__(
        self, results: Sequence[Result], milliseconds: Sequence[float], shape: Sequence[int]
    ) -> None:
        self._results = list(results)
        self.ims = [result.image for result in results]
        self.files = [str(result.frame.source) for result in results]
        self.names = dict(enumerate(results[0].class_names)) if results else {}
        self.n = len(results)
        self.t = tuple(milliseconds)
        self.s = tuple(shape)
        self.xyxy, self.xyxyn, self.xywh, self.xywhn = (
            [_tensor(result, kind) for result in results] for kind in Tables._fields
        )
        self.pred = self.xyxy

    @property
    def imgs(self) -> list[np.ndarray]:
        """`ims`, by its name until 2022."""
        return self.ims

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[HubResults]:
        return iter(self.tolist())

    def _lines(self) -> list[str]:
        numbered = enumerate(self._results, 1)
        return [f"image {number}/{self.n}: {result.summary()}" for number, result in numbered]

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    def print(self) -> None:
        before, network, after = self.t
        speed = f"{before:.1f} ms pre-process, {network:.1f} ms inference, {after:.1f} ms NMS"
        say(*self._lines(), f"Speed: {speed} per image at shape {self.s}")

    def render(self, labels: bool = True) -> list[np.ndarray]:
        """Draw the detections into `ims`, with class and score if labels is set; return `ims`."""
        self.ims = [result.plot(labels=labels) for result in self._results]
        return self.ims

    def show(self, labels: bool = True) -> None:
        """Show the drawn images in the viewer that Pillow finds; UserError if there is none."""
        for name, image in zip(self.files, self.render(labels), strict=True):
            if not ImageShow.show(Image.fromarray(image), title=name):
                raise UserError("show(): no image viewer found; use save() to write the images")

    def save(
        self, labels: bool = True, save_dir: str | Path = SAVE_DIR, exist_ok: bool = False
    ) -> None:
        """Write the drawn images to a folder, numbered if it exists, and print its path."""
        self._write(save_dir, exist_ok, hide_labels=not labels, hide_conf=not labels)

    def crop(
        self, save: bool = True, save_dir: str | Path = SAVE_DIR, exist_ok: bool = False
    ) -> list[dict[str, Any]]:
        """Return the crop of each box, image by image, lowest score first.

        Dicts with box (left, top, right, bottom in pixels), conf, cls, label ("bus 0.51") and im,
        (h, w, 3) uint8 RGB; with save also written as crops/CLASS/NAME.jpg.
        """
        if save:
            self._write(save_dir, exist_ok, nosave=True, save_crop=True)
        return [
            {
                "box": list(found.box_xyxy),
                "conf": found.score,
                "cls": float(found.class_index),
                "label": f"{found.name} {found.score:.2f}",
                "im": image,
            }
            for result in self._results
            for found, image in reversed(list(zip(result, result.crop(), strict=True)))
        ]

    def _write(self, save_dir: str | Path, exist_ok: bool, **flags: Any) -> None:
        path = Path(save_dir)
        folder = create_run_folder(path.parent, path.name, exist_ok)
        config = DetectConfig(weights=("given",), **flags)
        try:
            with RunFiles(folder, config, list(self.names.values())) as files:
                for result in self._results:
                    files.add(result)
        except OSError as error:
            raise UserError(f"{error.filename or folder}: {error.strerror or error}") from error
        say(f"results in {folder}")

    def tolist(self) -> list[HubResults]:
        return [HubResults([result], self.t, self.s) for result in self._results]

    def pandas(self) -> Tables:
        """Return tables, for use as `results.pandas().xyxy[0]`; UserError without pandas."""
        return Tables(*([_table(one, kind) for one in self._results] for kind in Tables._fields))


def _boxes(result: Result, kind: str) -> np.ndarray:
    boxes = result.boxes_xyxy
    if kind.startswith("xywh"):
        boxes = xyxy_to_cxcywh(boxes)
    if not kind.endswith("n"):
        return boxes
    height, width = result.image.shape[:2]
    return boxes / np.array([width, height, width, height], np.float32)


def _table(result: Result, kind: str) -> Any:
    table = result.to_pandas()
    table[list(CORNERS)] = _boxes(result, kind).astype(np.float64)
    if kind.startswith("xywh"):
        return table.rename(columns=dict(zip(CORNERS, CENTRE_AND_SIZE, strict=True)))
    return table


def _tensor(result: Result, kind: str) -> Tensor:
    columns = (_boxes(result, kind), result.scores[:, None], result.class_index[:, None])
    return ops.tensor(np.concatenate(columns, axis=1).astype(np.float32))


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
        self.names = dict(enumerate(self._detector.class_names))

    def __call__(
        self,
        ims: object,
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
            finished(detector, frame, [view], [found])
            for frame, view, found in zip(frames, views, rows, strict=True)
        ]
        end = time.perf_counter()
        milliseconds = [
            1000 * seconds / max(len(views), 1)
            for seconds in (ready - start, predicted - ready, end - predicted)
        ]
        shape = (len(views), 3, *(views[0].placement.input_size if views else (0, 0)))
        return HubResults(results, milliseconds, shape)

    def to(self, device: object) -> HubModel:
        """Move to "cpu", "cuda", "cuda:1", 1, or an object that prints so; return the model."""
        name = str(device)
        self._place("0" if name == "cuda" else name, self._half)
        return self

    def cpu(self) -> HubModel:
        return self.to("cpu")

    def cuda(self, device: int = 0) -> HubModel:
        return self.to(device)

    def eval(self) -> HubModel:
        return self

    def half(self) -> HubModel:
        """Compute in half precision if the device supports it; log a line if not."""
        self._place(self.device, half=True)
        return self

    def float(self) -> HubModel:
        self._place(self.device, half=False)
        return self

    def _configured(self, long_side: int, num_images: int, augment: bool) -> ImageDetector:
        config = call_config(
            self._detector.class_names,
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


def _long_side(size: object) -> int:
    """Return the long side from a number or (height, width)."""
    sides = size if isinstance(size, (list, tuple)) and size else [size]
    return max(call_config((), size=side).image_size or 0 for side in sides)


def _frame(image: object, index: int) -> Frame:
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
