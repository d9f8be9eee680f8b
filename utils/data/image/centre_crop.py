"""The middle of an image as a network takes it that says what an image shows as a whole."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from utils.data.image.letterbox import Letterbox


class Region(NamedTuple):
    """A part of an image, in its pixels."""

    top: int
    left: int
    height: int
    width: int

    def of(self, image: np.ndarray) -> np.ndarray:
        """Return this part of an image (H, W, ...), a view."""
        bottom, right = self.top + self.height, self.left + self.width
        return image[self.top : bottom, self.left : right]


def centre_region(size: tuple[int, int], output_size: tuple[int, int]) -> Region:
    """Return the largest part in the middle of an image of (height, width) with a shape.

    For a square it is that of the shorter side.
    """
    scale = min(side / wanted for side, wanted in zip(size, output_size, strict=True))
    height, width = (
        min(max(round(wanted * scale), 1), side)
        for side, wanted in zip(size, output_size, strict=True)
    )
    return Region((size[0] - height) // 2, (size[1] - width) // 2, height, width)


def crop(image: np.ndarray, region: Region, output_size: tuple[int, int]) -> np.ndarray:
    """Return a part of an image (H, W, 3) uint8 resized to (height, width).

    Bilinear, also where it shrinks: trained weights of the public YOLOv5 expect it.
    """
    part = region.of(image)
    if part.shape[:2] == output_size:
        return np.ascontiguousarray(part)
    return cv2.resize(part, output_size[::-1], interpolation=cv2.INTER_LINEAR)


def crop_placement(region: Region, output_size: tuple[int, int]) -> Letterbox:
    """Return how a part of an image, as if there were no more of it, fills an input."""
    return Letterbox((region.height, region.width), output_size, (0, 0), output_size)
