"""Random affine and perspective transforms, of boxes too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

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
        """Return (3, 3) float64, canvas pixel (x, y, 1) to output pixel; sizes (height, width)."""
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
        return reduce(multiply, (from_centre, shear, rotation, perspective, to_centre))


def multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product of two (3, 3) matrices; `right` is applied first."""
    # Not `@`: BLAS builds differ in the last bit, and pixels must not depend on the NumPy wheel.
    return (left[:, :, None] * right[None, :, :]).sum(axis=1)


def determinant(matrix: np.ndarray) -> float:
    """Return the determinant of a (3, 3) matrix, without LAPACK for the same reason."""
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def invert(matrix: np.ndarray) -> np.ndarray:
    """Return the inverse of a (3, 3) matrix that has one."""
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    adjugate = [
        [e * i - f * h, c * h - b * i, b * f - c * e],
        [f * g - d * i, a * i - c * g, c * d - a * f],
        [d * h - e * g, b * g - a * h, a * e - b * d],
    ]
    return np.array(adjugate) / determinant(matrix)


def warp_corners(
    corners_xyxy: tuple[float, float, float, float], matrix: np.ndarray
) -> tuple[float, float, float, float] | None:
    """Return left, top, right, bottom around a warped box; None with a corner behind the viewer."""
    left, top, right, bottom = corners_xyxy
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    points = [(x, y, g * x + h * y + i) for x in (left, right) for y in (top, bottom)]
    if any(divisor <= 0 for _, _, divisor in points):
        return None
    xs = [(a * x + b * y + c) / divisor for x, y, divisor in points]
    ys = [(d * x + e * y + f) / divisor for x, y, divisor in points]
    return min(xs), min(ys), max(xs), max(ys)


def warp_boxes(boxes_xyxy: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return (M, 4) float64 boxes around the warped corners of boxes, pixels, not clipped."""
    x, y = boxes_xyxy[:, [0, 2, 2, 0]], boxes_xyxy[:, [1, 1, 3, 3]]
    warped_x, warped_y, divisor = (row[0] * x + row[1] * y + row[2] for row in matrix)
    # A corner behind the viewer counts as one at infinity in the same direction.
    divisor = np.maximum(divisor, _EPSILON)
    points = np.stack((warped_x / divisor, warped_y / divisor), axis=-1)
    return np.concatenate((points.min(axis=1), points.max(axis=1)), axis=1)


def worth_keeping(before_xyxy: np.ndarray, after_xyxy: np.ndarray) -> np.ndarray:
    """Return which boxes still show enough of their object after a transform and clipping.

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
