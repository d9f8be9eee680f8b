"""Resize an image, and put it into the network's input.

Before: `letterbox.py` says where it lies there. After: the loader's batches.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from utils.data.image.letterbox import Letterbox

FILL = 114  # the grey of the public recipe; trained weights expect it around the image


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an image to (height, width): area averages when it shrinks, else bilinear.

    Bilinear reads four pixels and so aliases below half size; the average does not.
    """
    shrinks = size[0] < image.shape[0] or size[1] < image.shape[1]
    return _resize(image, size, cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def resize_to_detect(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an image to (height, width): area averages below half its long side, else bilinear.

    The public YOLOv5 detects in bilinear images. Below half their size those skip pixels.
    """
    aliases = 2 * max(size) < max(image.shape[:2])
    return _resize(image, size, cv2.INTER_AREA if aliases else cv2.INTER_LINEAR)


def _resize(image: np.ndarray, size: tuple[int, int], interpolation: int) -> np.ndarray:
    if image.shape[:2] == size:
        return image
    return cv2.resize(image, (size[1], size[0]), interpolation=interpolation)


def letterbox(
    image: np.ndarray,
    placement: Letterbox,
    resizing: Callable[[np.ndarray, tuple[int, int]], np.ndarray] = resize,
) -> np.ndarray:
    """Resize and pad an image (H, W, 3) uint8 to `placement.input_size` with grey."""
    canvas = np.full((*placement.input_size, 3), FILL, np.uint8)
    (height, width), (top, left) = placement.resized_size, placement.padding
    canvas[top : top + height, left : left + width] = resizing(image, placement.resized_size)
    return canvas
