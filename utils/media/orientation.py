"""Images turned and mirrored to stand upright, as EXIF or a video's display matrix says.

Before: decoded pixels. After: `image_file.py`, `video_frames.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

# What makes an image of each EXIF orientation upright. Source: CIPA DC-008, "Orientation".
_TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda image: image[:, ::-1],
    3: lambda image: image[::-1, ::-1],
    4: lambda image: image[::-1],
    5: lambda image: image.transpose(1, 0, 2),
    6: lambda image: image[::-1].transpose(1, 0, 2),  # a quarter clockwise
    7: lambda image: image[::-1, ::-1].transpose(1, 0, 2),
    8: lambda image: image.transpose(1, 0, 2)[::-1],  # a quarter counter-clockwise
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


def turned_upright(image: np.ndarray, orientation: int | None) -> np.ndarray:
    """Return an image (H, W, 3) of an EXIF orientation as it is to be seen; 1 and others: as is."""
    turn = _TURNS.get(orientation or 1)
    return image if turn is None else np.ascontiguousarray(turn(image))


def orientation_of_matrix(matrix: Sequence[int]) -> int:
    """Return the EXIF orientation of a video's display matrix, nine numbers row by row.

    A matrix that is none of the eight, as one that turns by 45 degrees, counts as upright.
    Source: ISO/IEC 14496-12, "Track header box".
    """
    a, b, _, c, d, *_ = np.sign(matrix).tolist()
    return _OF_MATRIX.get((a, b, c, d), 1)
