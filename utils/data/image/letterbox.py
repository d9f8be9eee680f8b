"""Where an image lies in the network's input, and its boxes mapped there and back.

Before: `utils/data/loading/reading.py`. After: the loader's batches, and the boxes found in them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from utils.boxes import clip_boxes


@dataclass(frozen=True)
class Letterbox:
    """Where an image lies in a network input; all sizes are (height, width) in pixels."""

    original_size: tuple[int, int]
    resized_size: tuple[int, int]
    padding: tuple[int, int]  # (top, left); what is left over lies at the bottom and right
    input_size: tuple[int, int]

    @property
    def scale(self) -> tuple[float, float]:
        """(vertical, horizontal) factor from original to input pixels, exact after rounding."""
        height, width = self.original_size
        return self.resized_size[0] / height, self.resized_size[1] / width

    def to_input(self, boxes_xyxy: np.ndarray) -> np.ndarray:
        """Map (M, 4) boxes from original pixels to input pixels, in the dtype given."""
        scale, offset = self._scale_and_offset(boxes_xyxy.dtype)
        return boxes_xyxy * scale + offset

    def to_original(self, boxes_xyxy: np.ndarray) -> np.ndarray:
        """Map (M, 4) boxes from input pixels to original pixels, not clipped."""
        scale, offset = self._scale_and_offset(boxes_xyxy.dtype)
        return (boxes_xyxy - offset) / scale

    def _scale_and_offset(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        (scale_y, scale_x), (top, left) = self.scale, self.padding
        scale = np.array([scale_x, scale_y, scale_x, scale_y], dtype)
        return scale, np.array([left, top, left, top], dtype)


def fit_long_side(
    original_size: tuple[int, int], long_side: int, input_size: tuple[int, int]
) -> Letterbox:
    """Centre an image of a dataset in an input that holds it.

    Its long side becomes `long_side` and the other the ceiling of what it scales to, as the public
    YOLOv5 loads images for training and validation: 349 x 640 becomes 175 x 320.
    """
    longest = max(original_size)
    height, width = (-(-side * long_side // longest) for side in original_size)
    return _centre(original_size, (height, width), input_size)


def fitting_long_side(original_size: tuple[int, int], input_size: tuple[int, int]) -> int:
    """Return the largest long side with which `fit_long_side` puts an image into an input."""
    longest = max(original_size)
    pairs = zip(input_size, original_size, strict=True)
    return max(1, min(longest * inside // side for inside, side in pairs))


def fit_letterbox(
    original_size: tuple[int, int], input_size: tuple[int, int], max_scale: float = math.inf
) -> Letterbox:
    """Centre an image of no dataset in an input, as large as fits.

    Its sides are rounded to the nearest pixel, as the public YOLOv5 does before it detects.

    Args:
        original_size: (height, width), pixels.
        input_size: (height, width), pixels.
        max_scale: the image becomes at most this many times larger.
    """
    scale = min(input_size[0] / original_size[0], input_size[1] / original_size[1], max_scale)
    height, width = (max(1, round(side * scale)) for side in original_size)
    return _centre(original_size, (height, width), input_size)


def _centre(
    original_size: tuple[int, int], resized_size: tuple[int, int], input_size: tuple[int, int]
) -> Letterbox:
    top, left = ((whole - side) // 2 for whole, side in zip(input_size, resized_size, strict=True))
    return Letterbox(original_size, resized_size, (top, left), input_size)


def letterbox_to_image(boxes_xyxy: np.ndarray, placement: Letterbox) -> np.ndarray:
    """Map boxes from input pixels to pixels of the original image and clip them to it.

    Args:
        boxes_xyxy: (K, 4), pixels of the network's input.
        placement: where the original image lies in the input.

    Returns:
        (K, 4), dtype of boxes_xyxy.
    """
    return clip_boxes(placement.to_original(boxes_xyxy), placement.original_size)
