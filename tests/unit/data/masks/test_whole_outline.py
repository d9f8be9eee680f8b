"""Masks coded by runs, and objects of several parts, as one outline; against pycocotools."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from pycocotools import mask as pycocotools_mask

from duet.utils.data.masks.runs import read_runs, whole_outline
from duet.utils.geometry.ragged import join_parts

SQUARE = np.array([[0, 0], [4, 0], [4, 4], [0, 4]], np.float64)


def covered(outline: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return which pixels have their centre within an outline, by the even-odd rule."""
    y, x = np.mgrid[: size[0], : size[1]] + 0.5
    inside = np.zeros(size, bool)
    for (x0, y0), (x1, y1) in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) / (y1 - y0) * (x1 - x0))
    return inside


def draw_mask(seed: int) -> np.ndarray:
    """Draw noise, smooth shapes with holes, nothing or everything, of any small size."""
    random = np.random.Generator(np.random.Philox(seed))
    size, density = random.integers(1, 24, 2), random.choice([0, 0.1, 0.5, 0.9, 1])
    mask = (random.random(size) < density).astype(np.uint8)
    return cv2.blur(mask * 255, (3, 3)) // 128 if seed % 2 else mask


def mask_outline(segmentation: dict[str, object]) -> np.ndarray:
    return whole_outline(*read_runs(segmentation))


def as_text(mask: np.ndarray) -> dict[str, object]:
    coded = pycocotools_mask.encode(np.asfortranarray(mask))
    return {"size": list(mask.shape), "counts": coded["counts"].decode()}


def as_numbers(mask: np.ndarray) -> dict[str, object]:
    pixels = np.concatenate(([0], mask.T.ravel().astype(np.int64)))
    changes = np.flatnonzero(np.diff(pixels))
    counts = np.diff(np.concatenate(([0], changes, [mask.size])))
    return {"size": list(mask.shape), "counts": counts.tolist()}


@pytest.mark.parametrize("coded", [as_text, as_numbers])
def test_an_outline_covers_exactly_the_pixels_of_its_mask(coded):
    for seed in range(120):
        mask = draw_mask(seed)
        segmentation = coded(mask)
        outline = mask_outline(segmentation)
        assert outline.dtype == np.float64 and outline.shape[1] == 2
        np.testing.assert_array_equal(covered(outline, mask.shape), mask.astype(bool), str(seed))


def test_a_rectangle_has_four_corners_and_a_ring_one_bridge():
    mask = np.zeros((8, 9), np.uint8)
    mask[2:5, 3:7] = 1
    assert sorted(mask_outline(as_text(mask)).tolist()) == [[3, 2], [3, 5], [7, 2], [7, 5]]
    mask[3, 4] = 0
    assert len(mask_outline(as_text(mask))) == 4 + 4 + 2  # there and back


@pytest.mark.parametrize(("size", "counts", "text"), [
    (None, [4], "size None"), ([2], [4], r"size \[2\]"), ([2, 0], [0], r"size \[2, 0\]"),
    ([2, 2.0], [4], "size"), ([2, 1 << 21], [1 << 22], "size"),
    ([1 << 14, 1 << 14], [1 << 28], "at most 134,217,728 are read"),
    *(([2, 2], counts, "do not fill") for counts in (
        [5], [3], [6, -2], [2**62, 2**62, 2**62, 2**62, 4])),
    # The last texts end within a number.
    *(([2, 2], counts, "runs of its mask") for counts in (
        [], [1, [1, 2]], [[1, 1, 1, 1]], [1.0, 3.0], ["1", "3"], None, {}, "", "4 ", "4é", "4P",
        "P" * 60 + "1")),
    ([2, 2], "O5", "below 0"),  # -1, 5
])  # fmt: skip
def test_damaged_runs_are_refused(size, counts, text):
    with pytest.raises(ValueError, match=text):
        mask_outline({"size": size, "counts": counts})


def test_parts_are_joined_by_lines_that_enclose_nothing():
    parts = [SQUARE, SQUARE + (10, 2), SQUARE + (4, 12), SQUARE[::-1] + (20, 20)]
    outline = join_parts(parts)
    expected = np.zeros((30, 30), bool)
    for x, y in ((0, 0), (10, 2), (4, 12), (20, 20)):
        expected[y : y + 4, x : x + 4] = True
    np.testing.assert_array_equal(covered(outline, (30, 30)), expected)
    assert {tuple(point) for point in outline.tolist()} == {
        tuple(point) for part in parts for point in part.tolist()
    }
    assert join_parts([SQUARE]) is SQUARE
