"""An exported file -> a predictor: the rest of the program cannot tell it from a model.

Before: `utils/export/opening.py` loads the file. After: `image_detector.py`, and
`models/evaluation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend import ops
from models.heads.base import Head
from models.registry import find_block
from utils.runtimes.metadata import DETECTIONS, Metadata
from utils.runtimes.runtime import Runtime


class ExportedPredictor:
    """A `Predictor` whose network is a file in its runtime.

    Attributes:
        fixed_size: (height, width) that every image must have; None: any multiple of the stride.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, metadata = runtime, runtime.metadata
        self.stride = metadata.stride
        self.fixed_size = None if metadata.dynamic else metadata.image_size
        self.head: Head = head_of(metadata)

    def __call__(self, images: Any) -> list[np.ndarray]:
        """Return of each image what the file predicts, (N, ...) float32."""
        pixels = ops.to_numpy(images)
        if self.runtime.metadata.dynamic:
            return list(self.runtime(pixels))
        size = self.runtime.metadata.batch_size
        found: list[np.ndarray] = []
        for start in range(0, len(pixels), size):
            batch = pixels[start : start + size]
            missing = size - len(batch)
            filled = np.concatenate((batch, np.repeat(batch[-1:], missing, axis=0)))
            found += list(self.runtime(filled))[: len(batch)]
        return found

    def decode_above(
        self, raw: Sequence[np.ndarray], confidence_threshold: float
    ) -> list[np.ndarray]:
        """Return the rows (K, 5 + C) of each image whose objectness is above the threshold.

        Of a file with NMS these are what it kept, each sure of its class: NMS keeps them again.
        """
        if self.runtime.metadata.output == DETECTIONS:
            raw = [self._rows_of(image) for image in raw]
        return [image[image[:, 4] > confidence_threshold] for image in raw]

    def _rows_of(self, detections: np.ndarray) -> np.ndarray:
        """Map (K, 6) x1, y1, x2, y2, score, class to (K, 5 + C) as a model has them."""
        rows = np.zeros((len(detections), 5 + self.head.num_classes), np.float32)
        rows[:, 0:2] = (detections[:, 0:2] + detections[:, 2:4]) / 2
        rows[:, 2:4] = detections[:, 2:4] - detections[:, 0:2]
        rows[:, 4] = detections[:, 4]
        rows[np.arange(len(rows)), 5 + detections[:, 5].astype(int)] = 1
        return rows

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Take any images: the runtime says when they are too many."""


def head_of(metadata: Metadata) -> Head:
    """Return the head that finishes the rows of a file; its own network is in the file."""
    kind: Any = find_block(metadata.head).kind
    head: Head = kind.without_network(len(metadata.class_names))
    return head
