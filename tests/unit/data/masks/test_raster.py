"""Outlines drawn into the maps of a loss, against the stored public ones."""

import hashlib
import json

import cv2
import numpy as np
import pytest

from duet.utils.data.masks.raster import index_map, separate
from duet.utils.polygons import Polygons, without_outlines
from tests.outlines import make_polygons
from tests.shared_files import shared_path


def sha1(array: np.ndarray) -> str:
    return hashlib.sha1(array.tobytes()).hexdigest()


def coco_outlines(name: str, size: tuple[int, int]) -> Polygons:
    lines = shared_path(f"data/coco256/labels-seg/train2017/{name}").read_text().splitlines()
    rows = [np.array(line.split()[1:], np.float32).reshape(-1, 2) for line in lines]
    return make_polygons([row * np.array(size[::-1], np.float64) for row in rows])


def test_outlines_of_real_images_give_the_public_maps_bit_for_bit():
    cases = json.loads(shared_path("golden/segment/polygons_to_masks.json").read_text())
    assert {case["ratio"] for case in cases} == {1, 4}
    with np.load(shared_path("golden/segment/polygons_to_masks.npz")) as stored:
        for number, case in enumerate(cases):
            size = tuple(case["hw"])
            outlines = coco_outlines(case["file"], size)
            numbers, value = index_map(outlines, size, case["ratio"])
            masks = separate(outlines, size, case["ratio"])
            assert (numbers.shape, str(numbers.dtype)) == (
                tuple(case["shape_overlap"]),
                case["dtype"],
            )
            assert sha1(numbers) == case["sha1_overlap"]
            assert sha1(masks) == case["sha1_separate"]
            np.testing.assert_array_equal(np.argsort(value), stored[f"c{number}_order"])
            np.testing.assert_array_equal(masks.sum(axis=(1, 2)), stored[f"c{number}_areas"])


def test_equal_areas_overlaps_and_outlines_over_the_border_are_the_public_ones():
    with np.load(shared_path("golden/segment/polygons_to_masks.npz")) as stored:
        outlines = make_polygons([stored[f"synthetic_polygon_{index}"] for index in range(5)])
        numbers, value = index_map(outlines, (32, 40), 1)
        np.testing.assert_array_equal(numbers, stored["synthetic_overlap"])
        np.testing.assert_array_equal(np.argsort(value), stored["synthetic_order"])
        np.testing.assert_array_equal(separate(outlines, (32, 40), 1), stored["synthetic_separate"])


@pytest.mark.parametrize("ratio", [1, 2, 3, 4])
def test_drawing_a_part_of_the_image_gives_the_pixels_of_the_whole(ratio):
    """The whole: an outline filled in a whole image, which is then made smaller."""
    random = np.random.Generator(np.random.Philox(ratio))
    for number in range(400):
        height, width = (random.integers(1, 24, 2) * ratio + number % 2).tolist()
        spread = (-2.0, 3.0) if number % 3 else (-0.1, 1.1)
        outline = random.uniform(*spread, (random.integers(1, 9), 2)) * [width, height]
        whole = np.zeros((height, width), np.uint8)
        cv2.fillPoly(whole, [outline.astype(np.float32).astype(np.int32)], (1,))
        expected = cv2.resize(whole, (width // ratio, height // ratio))
        (found,) = separate(make_polygons([outline]), (height, width), ratio)
        np.testing.assert_array_equal(found, expected)


def test_a_corner_is_cut_to_a_whole_pixel_and_the_border_belongs_to_the_object():
    square = make_polygons([[(1.9, 2.9), (4.1, 2.0), (4.9, 5.9), (1.0, 5.1)]])
    (mask,) = separate(square, (8, 8), 1)
    assert mask.sum() == 4 * 4 and mask[2:6, 1:5].all()


def test_small_objects_lie_on_large_ones_and_equal_ones_in_the_order_of_the_labels():
    small = [(2, 2), (3, 2), (3, 3), (2, 3)]
    large = [(0, 0), (7, 0), (7, 7), (0, 7)]
    numbers, value = index_map(make_polygons([small, large, small]), (8, 8), 1)
    assert value.tolist() == [2, 1, 3]
    assert (numbers == 1).sum() == 60 and (numbers == 2).sum() == 0 and (numbers == 3).sum() == 4


def test_more_objects_than_a_byte_counts_take_a_wider_number():
    places = [(x, y) for y in range(16) for x in range(16)]
    points = [[place] for place in places]
    numbers, value = index_map(make_polygons(points[:255]), (16, 16), 1)
    assert numbers.dtype == np.uint8 and numbers.max() == 255
    numbers, value = index_map(make_polygons(points), (16, 16), 1)
    assert numbers.dtype == np.int32 and numbers.max() == 256
    np.testing.assert_array_equal(numbers.reshape(-1), value)


def test_no_object_and_objects_that_are_not_seen_have_no_pixels():
    numbers, value = index_map(without_outlines(0), (8, 12), 4)
    assert (numbers.shape, numbers.dtype, numbers.any()) == ((2, 3), np.uint8, False)
    assert (value.shape, value.dtype) == ((0,), np.int64)
    assert separate(without_outlines(0), (8, 12), 4).shape == (0, 2, 3)
    outside = make_polygons([[], [(20, 20), (30, 20), (30, 30)], [(-9, -9), (-5, -9), (-5, -5)]])
    numbers, value = index_map(outside, (8, 12), 4)
    assert value.tolist() == [1, 2, 3] and not numbers.any()
