"""The part of a mask in which its object lies."""

import numpy as np
import pytest

from utils.masks.runs import runs_of_mask
from utils.masks.window import largest_outline, outline_of_runs, window_of_runs

CASES = np.random.default_rng(0)


def random_masks():
    for _ in range(200):
        size = CASES.integers(1, 30, 2)
        yield CASES.random(size) < CASES.choice([0, 0.01, 0.1, 0.5, 0.95, 1])


def test_a_window_holds_all_of_the_object_and_no_empty_side():
    for mask in random_masks():
        top, left, pixels = window_of_runs(runs_of_mask(mask), mask.shape)
        height, width = pixels.shape
        whole = np.zeros_like(mask)
        whole[top : top + height, left : left + width] = pixels
        np.testing.assert_array_equal(whole, mask)
        assert width == (np.ptp(np.flatnonzero(mask.any(axis=0))) + 1 if mask.any() else 0)


def test_the_outline_of_a_window_is_that_of_the_whole_mask():
    for mask in random_masks():
        found = outline_of_runs(runs_of_mask(mask), mask.shape)
        np.testing.assert_array_equal(found, largest_outline(mask))


@pytest.mark.parametrize("size", [(1, 1), (4, 7)])
def test_an_empty_mask_has_a_window_without_pixels(size):
    runs = np.array([size[0] * size[1]], np.uint32)
    assert window_of_runs(runs, size).pixels.size == 0
    assert outline_of_runs(runs, size).shape == (0, 2)


def test_an_object_at_the_end_of_a_large_image_needs_little_memory():
    runs = np.array([2**31 - 3, 1, 2], np.uint32)  # 65,536 x 32,768 pixels
    top, left, pixels = window_of_runs(runs, (2**16, 2**15))
    assert (top, left, pixels.shape, pixels.all()) == (2**16 - 3, 2**15 - 1, (1, 1), True)
