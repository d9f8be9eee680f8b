"""An image -> the views of it that the network takes, and back: here one, the whole image.

Before: an image of any size. After: `image_detector.py` predicts in the views.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from utils.data.image.letterbox import Letterbox, fit_letterbox
from utils.data.image.resizing import letterbox, resize_to_detect


class View(NamedTuple):
    """A part of an image, or all of it, as the network takes it."""

    pixels: np.ndarray  # (h, w, 3) uint8 RGB, sides multiples of the model's stride
    placement: Letterbox  # where the part lies in the pixels
    offset: tuple[int, int] = (0, 0)  # (top, left) of the part in the image


def whole_view(image: np.ndarray, long_side: int, stride: int) -> View:
    """Return an image (H, W, 3) with its long side resized to long_side, and the least padding."""
    size = image.shape[0], image.shape[1]
    fitted = fit_letterbox(size, (long_side, long_side)).resized_size
    height, width = (-(-side // stride) * stride for side in fitted)
    placement = fit_letterbox(size, (height, width), max_scale=long_side / max(size))
    return View(letterbox(image, placement, resize_to_detect), placement)
