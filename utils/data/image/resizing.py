"""Resize an image, and put it into the network's input.

Before: `letterbox.py` says where it lies there. After: the loader's batches.
"""

from __future__ import annotations

import cv2
import numpy as np

from utils.data.image.letterbox import Letterbox

FILL = 114  # the grey of the public recipe; trained weights expect it around the image


def letterbox(image: np.ndarray, placement: Letterbox) -> np.ndarray:
    """Resize and pad an image (H, W, 3) uint8 to `placement.input_size` with grey."""
    canvas = np.full((*placement.input_size, 3), FILL, np.uint8)
    (height, width), (top, left) = placement.resized_size, placement.padding
    canvas[top : top + height, left : left + width] = resize(image, placement.resized_size)
    return canvas


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an image to (height, width): area averages when it shrinks, else bilinear.

    Bilinear reads four pixels and so aliases below half size; the average does not.
    """
    if image.shape[:2] == size:
        return image
    shrinks = size[0] < image.shape[0] or size[1] < image.shape[1]
    interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return cv2.resize(image, (size[1], size[0]), interpolation=interpolation)
