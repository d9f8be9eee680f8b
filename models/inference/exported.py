"""An exported file -> a predictor: the rest of the program cannot tell it from a model.

Before: `utils/export/opening.py` loads the file. After: `image_detector.py`, and
`models/evaluation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend import ops
from backend.words import count
from models.heads.base import BoxHead, Head
from models.registry import find_block
from utils.data.loading.memory import require_memory
from utils.errors import UserError, brief
from utils.runtimes.metadata import DETECTIONS, PIXELS, Metadata
from utils.runtimes.runtime import Runtime

DETECTION_COLUMNS = 6  # x1, y1, x2, y2, score, class


class ExportedPredictor:
    """A `Predictor` whose network is a file in its runtime.

    Attributes:
        path: of the file, for messages.
        fixed_size: (height, width) that every image must have; None: any multiple of the stride. A
            file that letterboxes has one too: its graph leaves an image of that size as it is.
    """

    takes_arrays = True

    def __init__(self, runtime: Runtime, path: str = "") -> None:
        self.runtime, self.path, metadata = runtime, path, runtime.metadata
        self.stride = metadata.stride
        self.fixed_size = None if metadata.dynamic else metadata.image_size
        self.head: Head = head_of(metadata, path)
        if metadata.image != PIXELS and not metadata.dynamic:
            self._require_batch()

    def _require_batch(self) -> None:
        """Raise UserError if memory cannot hold a batch of the file, as uint8 and as float32."""
        batch, (height, width) = self.runtime.metadata.batch_size, self.runtime.metadata.image_size
        require_memory(
            (1 + 4) * batch * 3 * height * width,
            f"--weights {self.path}: a batch of the file, {count(batch, 'image')} of {width} x "
            f"{height} px,",
            "export it with a smaller --batch-size or --img",
        )

    def __call__(self, images: Any) -> list[np.ndarray]:
        """Return of each image what the file predicts, (N, ...) float32.

        images: (B, 3, H, W), an array uint8 or, beside models of the backend, a tensor in [0, 1].
        """
        if not isinstance(images, np.ndarray):
            images = ops.to_numpy(images)
        metadata = self.runtime.metadata
        if metadata.image == PIXELS:
            return [self._run(pixels_of(image), 1)[0] for image in images]
        if metadata.dynamic:
            return list(self._run(floats_of(images), len(images)))
        found: list[np.ndarray] = []
        for start in range(0, len(images), metadata.batch_size):
            batch = images[start : start + metadata.batch_size]
            missing = metadata.batch_size - len(batch)
            filled = np.concatenate((batch, np.repeat(batch[-1:], missing, axis=0)))
            found += list(self._run(floats_of(filled), len(filled)))[: len(batch)]
        return found

    def _run(self, images: np.ndarray, batch_size: int) -> np.ndarray:
        """Return what the file predicts; UserError where its metadata tells another shape."""
        found = self.runtime(images)
        metadata = self.runtime.metadata
        columns = 5 + len(metadata.class_names)
        if metadata.output == DETECTIONS:
            columns = DETECTION_COLUMNS
        if found.ndim != 3 or found.shape[::2] != (batch_size, columns):
            raise UserError(
                f"--weights {self.path}: it returns {found.shape}, where its metadata says "
                f"({batch_size}, N, {columns}); export it again"
            )
        return found.astype(np.float32, copy=False)

    def decode_above(
        self, raw: Sequence[np.ndarray], confidence_threshold: float
    ) -> list[np.ndarray]:
        """Return the rows (K, 5 + C) of each image that may count as found: by column 4.

        Of a file with NMS these are what it kept, each sure of its class: NMS keeps them again.
        """
        if self.runtime.metadata.output == DETECTIONS:
            raw = [self._rows_of(image) for image in raw]
        return [image[image[:, 4] > confidence_threshold] for image in raw]

    def _rows_of(self, detections: np.ndarray) -> np.ndarray:
        """Map (K, 6) x1, y1, x2, y2, score, class to (K, 5 + C) as a model has them."""
        used = detections[detections[:, 4] > 0]
        classes = used[:, 5]
        wrong = ~((classes >= 0) & (classes < self.head.num_classes))
        if wrong.any():
            raise UserError(
                f"--weights {self.path}: it finds the class {brief(float(classes[wrong][0]))}, and "
                f"its metadata names {self.head.num_classes}; export it again"
            )
        rows = np.zeros((len(used), 5 + self.head.num_classes), np.float32)
        rows[:, 0:2] = (used[:, 0:2] + used[:, 2:4]) / 2
        rows[:, 2:4] = used[:, 2:4] - used[:, 0:2]
        rows[:, 4] = used[:, 4]
        rows[np.arange(len(rows)), 5 + classes.astype(int)] = 1
        return rows

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Take any images: the runtime says when they are too many."""


def floats_of(images: np.ndarray) -> np.ndarray:
    """Return images (B, 3, H, W) float32 in [0, 1], of such or of uint8."""
    if images.dtype == np.uint8:
        return np.divide(images, np.float32(255), dtype=np.float32)
    return np.ascontiguousarray(images, np.float32)


def pixels_of(image: np.ndarray) -> np.ndarray:
    """Return an image (H, W, 3) uint8, of (3, H, W) uint8 or float32 in [0, 1]."""
    if image.dtype != np.uint8:
        image = np.rint(image * 255).astype(np.uint8)
    return np.ascontiguousarray(image.transpose(1, 2, 0))


def head_of(metadata: Metadata, path: str = "") -> Head:
    """Return the head that finishes the rows of a file; its own network is in the file."""
    try:
        kind: Any = find_block(metadata.head).kind
    except UserError:  # of a name that it does not know
        kind = None
    if not hasattr(kind, "without_network"):
        raise UserError(
            f"--weights {path}: it was exported with the head {brief(metadata.head)}, of which "
            "exported files cannot be run here; give weights"
        )
    head: BoxHead = kind.without_network(len(metadata.class_names))
    return head
