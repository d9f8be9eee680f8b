"""What a network sees: tiles that cover an image, its middle, or all of it."""

import numpy as np
import pytest

from duet.utils.data.image.view import view_of
from duet.utils.tiling import MAX_OVERLAP, MIN_OVERLAP, Tiling


@pytest.mark.parametrize("overlap", [MIN_OVERLAP, 0.2, 0.5, MAX_OVERLAP])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 100, 127, 128, 129, 1000, 3333])
def test_tiles_are_spread_evenly_and_none_is_more_than_needed(length, overlap):
    side = 64
    tiling = Tiling(side, overlap)
    corners = tiling.corners((length, 1))
    assert {left for _, left in corners} == {0}
    tops = [top for top, _ in corners]
    assert tiling.tile_size((length, 1)) == (min(side, length), 1)
    assert tops[0] == 0 and tops[-1] + min(side, length) == length
    steps = np.diff(tops)
    if length > side:
        assert side - steps.max() >= side * overlap
        assert steps.max() - steps.min() <= 1
        # One tile less would lie further apart, on average, than the overlap permits.
        intervals = len(tops) - 1
        assert length - side > (intervals - 1) * (side - np.ceil(side * overlap))
    else:
        assert tops == [0]


def test_tiles_go_row_by_row():
    # 130 px: 66 beyond the first tile, at most 51 apart; 70 px: 6 beyond it.
    assert Tiling(64, 0.2).corners((70, 130)) == [
        (0, 0),
        (0, 33),
        (0, 66),
        (6, 0),
        (6, 33),
        (6, 66),
    ]
    assert Tiling(64, 0.2).corners((64, 64)) == [(0, 0)]


@pytest.mark.parametrize("fixed_size", [None, (24, 48)])
def test_a_classifier_sees_the_middle_of_an_image(fixed_size):
    image = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    view = view_of("classify")(image, 64, 32, fixed_size)
    if fixed_size is None:
        np.testing.assert_array_equal(view.pixels, image[:, 16:80])
        assert view.region_xyxy == (16, 0, 80, 64)
    else:
        assert view.pixels.shape == (24, 48, 3)
        assert view.region_xyxy == (0, 8, 96, 56)


def test_others_see_all_of_it():
    image = np.full((64, 96, 3), 200, np.uint8)
    view = view_of("detect")(image, 96, 32, None)
    assert view.pixels.shape == (64, 96, 3) and view.region_xyxy == (0, 0, 96, 64)
