"""Outlines of rotated boxes and ellipses, which labelling tools draw besides polygons."""

import math
from collections.abc import Sequence

import numpy as np

from duet.utils.data.augment.geometry import warp_polygons
from duet.utils.geometry.boxes import Polygons, starts_of

ELLIPSE_POINTS = 64  # its sides lie within 0.12 % of a radius of the ellipse


def ellipse_outline(
    centre_xy: Sequence[float], radii_xy: Sequence[float] | np.ndarray
) -> np.ndarray:
    """Return points of an ellipse, its outermost ones among them, (64, 2)."""
    angles = np.arange(ELLIPSE_POINTS) * (2 * np.pi / ELLIPSE_POINTS)
    return np.array(centre_xy) + np.array(radii_xy) * np.column_stack(
        [np.cos(angles), np.sin(angles)]
    )


def turned(outline_xy: np.ndarray, about_xy: tuple[float, float], degrees: float) -> np.ndarray:
    """Turn an outline (K, 2) in pixels clockwise, as seen on the screen, about a point."""
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    matrix = np.array([[cosine, sine], [-sine, cosine]])
    return (outline_xy - about_xy) @ matrix + np.array(about_xy)


def within(outline_xy: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the part of a convex outline inside an image of (height, width); it may be empty."""
    outline = Polygons(outline_xy, starts_of(np.array([len(outline_xy)])))
    return warp_polygons(outline, np.eye(3), size).points_xy
