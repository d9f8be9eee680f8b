"""Random affine and perspective transforms of an image and its boxes.

Before: `mosaic`. After: `augment`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import cv2
import numpy as np

from utils.data.letterbox import FILL

# The public recipe: an object that is smaller than this, or mostly cut off, teaches nothing.
MIN_SIDE = 2.0
MIN_AREA_RATIO = 0.1
MAX_ASPECT_RATIO = 100.0
_EPSILON = 1e-16


@dataclass(frozen=True)
class Warp:
    """One drawn transform: perspective, then rotation with zoom, then shear, about the centre."""

    angle: float = 0.0  # degrees, counter-clockwise
    zoom: float = 1.0
    shear_xy: tuple[float, float] = (0.0, 0.0)  # degrees
    centre_xy: tuple[float, float] = (0.5, 0.5)  # where the centre lands, fraction of the output
    perspective_xy: tuple[float, float] = (0.0, 0.0)  # change of the divisor per pixel

    def matrix(self, canvas_size: tuple[int, int], output_size: tuple[int, int]) -> np.ndarray:
        """(3, 3) float64: canvas pixel (x, y, 1) to output pixel; sizes are (height, width)."""
        to_centre = np.eye(3)
        to_centre[:2, 2] = -canvas_size[1] / 2, -canvas_size[0] / 2
        perspective = np.eye(3)
        perspective[2, :2] = self.perspective_xy
        cosine = self.zoom * math.cos(math.radians(self.angle))
        sine = self.zoom * math.sin(math.radians(self.angle))
        rotation = np.array([[cosine, sine, 0], [-sine, cosine, 0], [0, 0, 1]])
        shear = np.eye(3)
        shear[0, 1], shear[1, 0] = (math.tan(math.radians(angle)) for angle in self.shear_xy)
        from_centre = np.eye(3)
        from_centre[:2, 2] = (
            self.centre_xy[0] * output_size[1],
            self.centre_xy[1] * output_size[0],
        )
        return reduce(_multiply, (from_centre, shear, rotation, perspective, to_centre))


def _multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    # Not `@`: BLAS builds differ in the last bit, and pixels must not depend on the NumPy wheel.
    return (left[:, :, None] * right[None, :, :]).sum(axis=1)


def warp_image(image: np.ndarray, matrix: np.ndarray, output_size: tuple[int, int]) -> np.ndarray:
    """Bilinear warp of an image (H, W, 3) uint8 to (height, width); grey where it has no pixel."""
    size_wh, grey = (output_size[1], output_size[0]), (FILL, FILL, FILL)
    if np.array_equal(matrix, np.eye(3)) and image.shape[:2] == output_size:
        return image
    if np.array_equal(matrix[2], [0, 0, 1]):
        return cv2.warpAffine(image, matrix[:2], size_wh, borderValue=grey)
    return cv2.warpPerspective(image, matrix, size_wh, borderValue=grey)


def warp_boxes(boxes_xyxy: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """(M, 4) boxes around the warped corners of (M, 4) boxes, pixels, float64, not clipped."""
    x, y = boxes_xyxy[:, [0, 2, 2, 0]], boxes_xyxy[:, [1, 1, 3, 3]]
    warped_x, warped_y, divisor = (row[0] * x + row[1] * y + row[2] for row in matrix)
    # A corner behind the viewer is one at infinity, in the direction in which it lies.
    divisor = np.maximum(divisor, _EPSILON)
    points = np.stack((warped_x / divisor, warped_y / divisor), axis=-1)
    return np.concatenate((points.min(axis=1), points.max(axis=1)), axis=1)


def worth_keeping(before_xyxy: np.ndarray, after_xyxy: np.ndarray) -> np.ndarray:
    """Which boxes still show enough of their object after a transform and clipping.

    Args:
        before_xyxy: (M, 4) pixels, already zoomed by the transform, so that areas compare.
        after_xyxy: (M, 4) pixels, clipped to the output.

    Returns:
        (M,) bool: sides over 2 px, over 0.1 of the area left, aspect ratio under 100.
    """
    width_before, height_before = (before_xyxy[:, 2:] - before_xyxy[:, :2]).T
    width, height = (after_xyxy[:, 2:] - after_xyxy[:, :2]).T
    area_ratio = width * height / (width_before * height_before + _EPSILON)
    aspect_ratio = np.maximum(width / (height + _EPSILON), height / (width + _EPSILON))
    large_enough = (width > MIN_SIDE) & (height > MIN_SIDE)
    return large_enough & (area_ratio > MIN_AREA_RATIO) & (aspect_ratio < MAX_ASPECT_RATIO)
