"""An image with its boxes: decoded, or still to be decoded.

Before: `utils/data/loading/reading.py`. After: `augment/sample.py`, or a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from utils.data.image.decoding import reduced_size
from utils.data.image.letterbox import Letterbox
from utils.data.image.resizing import letterbox


class LabelledImage(NamedTuple):
    """An image and its boxes, both in the image's own pixels."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.image.shape[0], self.image.shape[1]


class SourceImage(NamedTuple):
    """An image that is decoded when it is asked for, with its boxes in its own pixels."""

    size: tuple[int, int]  # (height, width) of the file
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64, in pixels of the file
    reduction: int  # 1, 2, 4 or 8: the decoded image is so many times smaller
    decode: Callable[[], np.ndarray]  # returns (H, W, 3) uint8, of decoded_size

    @property
    def decoded_size(self) -> tuple[int, int]:
        """(height, width) of the decoded image."""
        return reduced_size(self.size, self.reduction)


def letterbox_labelled(item: LabelledImage, placement: Letterbox) -> LabelledImage:
    """Letterbox an image and move its boxes with it."""
    image = letterbox(item.image, placement)
    return LabelledImage(image, item.class_index, placement.to_input(item.boxes_xyxy))
