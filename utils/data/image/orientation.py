"""Rotate and mirror images upright, following EXIF or a display matrix."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

UPRIGHT = 1
# What makes an image of an EXIF orientation upright: first exchange rows and columns, then mirror.
# 6 is a quarter clockwise, 8 counter-clockwise. Source: CIPA DC-008, "Orientation".
EXCHANGES_SIDES = (5, 6, 7, 8)
_MIRRORS_X, _MIRRORS_Y = (2, 3, 6, 7), (3, 4, 7, 8)
# A matrix (a, b, c, d) takes the point (x, y), y downward, to (a x + c y, b x + d y).
_OF_MATRIX = {
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}


def known_orientation(value: object) -> int:
    """Return an EXIF orientation from 1 to 8; upright for anything else that a file may hold."""
    return value if isinstance(value, int) and 1 <= value <= 8 else UPRIGHT


def turned_upright(image: np.ndarray, orientation: int) -> np.ndarray:
    """Return an image (H, W, 3) turned upright from an EXIF orientation; 1 leaves it as it is."""
    if orientation in EXCHANGES_SIDES:
        image = cv2.transpose(image)
    mirrors_x, mirrors_y = orientation in _MIRRORS_X, orientation in _MIRRORS_Y
    if mirrors_x or mirrors_y:
        image = cv2.flip(image, 0 if not mirrors_x else -1 if mirrors_y else 1)
    return image


def orientation_of_matrix(matrix: Sequence[int]) -> int:
    """Return the EXIF orientation of a video's display matrix, nine numbers row by row.

    A matrix that is none of the eight, as one that turns by 45 degrees, counts as upright.
    Source: ISO/IEC 14496-12, "Track header box".
    """
    a, b, _, c, d, *_ = np.sign(matrix).tolist()
    return _OF_MATRIX.get((a, b, c, d), UPRIGHT)
