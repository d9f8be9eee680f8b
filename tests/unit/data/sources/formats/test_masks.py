"""An outline holds the pixels of its mask, and no others."""

import numpy as np
import pytest

from utils.data.sources.formats.masks import join_outlines, mask_outline


def filled(outline: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The pixels (H, W) whose middles lie in an outline, by the even-odd rule."""
    ys, xs = np.mgrid[: shape[0], : shape[1]] + 0.5
    inside = np.zeros(shape, bool)
    for (x1, y1), (x2, y2) in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        if y1 != y2:
            crosses = (ys > min(y1, y2)) & (ys < max(y1, y2))
            inside ^= crosses & (xs < x1 + (ys - y1) * (x2 - x1) / (y2 - y1))
    return inside


def area(outline: np.ndarray) -> float:
    """The area by the shoelace formula; holes count against it."""
    (x, y), (next_x, next_y) = outline.T, np.roll(outline, -1, axis=0).T
    return abs(float((x * next_y - y * next_x).sum())) / 2


@pytest.mark.parametrize("seed", range(60))
def test_an_outline_is_that_of_the_pixels(seed):
    rng = np.random.default_rng(seed)
    mask = rng.random(rng.integers(1, 12, 2)) < rng.random()
    mask[0, 0] = True
    outline = mask_outline(mask)
    assert outline.dtype == np.float64 and (outline == outline.round()).all()
    assert (filled(outline, mask.shape) == mask).all()
    assert area(outline) == mask.sum()


def test_a_full_mask_has_four_corners():
    assert sorted(mask_outline(np.ones((3, 5), bool)).tolist()) == [[0, 0], [0, 3], [5, 0], [5, 3]]


def test_no_pixel_and_noise_have_no_outline():
    assert mask_outline(np.zeros((4, 4), bool)).shape == (0, 2)
    noise = np.zeros((1200, 1200), bool)
    noise[::2, ::2] = True
    assert mask_outline(noise).shape == (0, 2)


def test_parts_are_joined_by_bridges_without_area():
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2]])
    parts = [square, square + [5, 0], square + [3, 7]]
    outline = join_outlines(parts)
    assert area(outline) == 12 and len(outline) == 3 * 5 + 1
    expected = np.zeros((10, 10), bool)
    expected[:2, :2] = expected[:2, 5:7] = expected[7:9, 3:5] = True
    assert (filled(outline, (10, 10)) == expected).all()
    assert join_outlines([square]).tolist() == square.tolist()
