"""Images and points turned and mirrored to stand upright, as EXIF or a display matrix says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np

UPRIGHT = 1
EXCHANGES_SIDES = (5, 6, 7, 8)
_UNDONE_BY = {6: 8, 8: 6}  # the others undo themselves


class _Turn(NamedTuple):
    """What makes an image upright: first exchange rows and columns, then mirror."""

    transposes: bool
    mirrors_x: bool
    mirrors_y: bool


# By EXIF orientation. Source: CIPA DC-008, "Orientation".
_TURNS = {
    1: _Turn(False, False, False),
    2: _Turn(False, True, False),
    3: _Turn(False, True, True),
    4: _Turn(False, False, True),
    5: _Turn(True, False, False),
    6: _Turn(True, True, False),  # a quarter clockwise
    7: _Turn(True, True, True),
    8: _Turn(True, False, True),  # a quarter counter-clockwise
}
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
    return value if isinstance(value, int) and value in _TURNS else UPRIGHT


def turned_upright(image: np.ndarray, orientation: int) -> np.ndarray:
    """Return an image (H, W, 3) of an EXIF orientation as it is to be seen; 1: as it is."""
    turn = _TURNS[orientation]
    if turn.transposes:
        image = cv2.transpose(image)
    if turn.mirrors_x or turn.mirrors_y:
        image = cv2.flip(image, 0 if not turn.mirrors_x else -1 if turn.mirrors_y else 1)
    return image


def points_upright(points_norm: np.ndarray, orientation: int) -> np.ndarray:
    """Return points (..., 2), x and y from 0 to 1 of the stored image, where they are seen."""
    turn = _TURNS[orientation]
    if turn.transposes:
        points_norm = points_norm[..., ::-1]
    mirrored = np.array([turn.mirrors_x, turn.mirrors_y])
    return np.where(mirrored, 1 - points_norm, points_norm)


def boxes_upright(boxes_xyxy_norm: np.ndarray, orientation: int) -> np.ndarray:
    """Return boxes (M, 4), from 0 to 1 of the stored image, where they are seen."""
    turn = _TURNS[orientation]
    corners = points_upright(boxes_xyxy_norm.reshape(-1, 2, 2), orientation)
    mirrored = np.array([turn.mirrors_x, turn.mirrors_y])
    return np.where(mirrored, corners[:, ::-1], corners).reshape(-1, 4)


def undone_by(orientation: int) -> int:
    """Return the orientation that reverses a given one."""
    return _UNDONE_BY.get(orientation, orientation)


def orientation_of_matrix(matrix: Sequence[int]) -> int:
    """Return the EXIF orientation of a video's display matrix, nine numbers row by row.

    A matrix that is none of the eight, as one that turns by 45 degrees, counts as upright.
    Source: ISO/IEC 14496-12, "Track header box".
    """
    a, b, _, c, d, *_ = np.sign(matrix).tolist()
    return _OF_MATRIX.get((a, b, c, d), UPRIGHT)
