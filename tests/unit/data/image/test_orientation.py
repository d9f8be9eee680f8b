"""Each EXIF orientation and each display matrix, on the image of a letter."""

from __future__ import annotations

import numpy as np
import pytest

from duet.utils.data.image.decoding import orientation_of_matrix, turned_upright
from duet.utils.data.image.header import known_orientation

IMAGE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
# By CIPA DC-008: where row 0 and column 0 of the stored image are seen.
EXPECTED = {
    1: IMAGE,  # top, left
    2: np.fliplr(IMAGE),  # top, right
    3: np.rot90(IMAGE, 2),  # bottom, right
    4: np.flipud(IMAGE),  # bottom, left
    5: np.fliplr(np.rot90(IMAGE, -1)),  # left, top
    6: np.rot90(IMAGE, -1),  # right, top
    7: np.fliplr(np.rot90(IMAGE, 1)),  # right, bottom
    8: np.rot90(IMAGE, 1),  # left, bottom
}


@pytest.mark.parametrize("value", [None, 0, 9, 65535, "6", (6, 6), 6.0, b"6", True + 8])
def test_an_unknown_orientation_counts_as_upright(value):
    assert known_orientation(value) == 1
    assert turned_upright(IMAGE, 1) is IMAGE


@pytest.mark.parametrize("orientation", EXPECTED)
def test_an_image_is_turned_as_its_exif_says(orientation):
    np.testing.assert_array_equal(turned_upright(IMAGE, orientation), EXPECTED[orientation])


@pytest.mark.parametrize("orientation", EXPECTED)
def test_a_matrix_is_the_orientation_that_moves_points_alike(orientation):
    height, width = IMAGE.shape[:2]
    upright = EXPECTED[orientation]
    # The matrix that takes the centres of stored pixels, from the middle, to where they are seen.
    stored, seen = [], []
    for row in range(height):
        for column in range(width):
            stored.append((column - (width - 1) / 2, row - (height - 1) / 2))
            (place,) = np.argwhere((upright == IMAGE[row, column]).all(2))
            shape = upright.shape
            seen.append((place[1] - (shape[1] - 1) / 2, place[0] - (shape[0] - 1) / 2))
    (a, b), (c, d) = np.round(np.linalg.lstsq(np.array(stored), np.array(seen), rcond=None)[0])
    one = 1 << 16
    matrix = [int(a) * one, int(b) * one, 0, int(c) * one, int(d) * one, 0, 0, 0, 1 << 30]
    assert orientation_of_matrix(matrix) == orientation
