"""Masks from prototypes, and outlines rasterized for a loss, against the stored public ones."""

import hashlib
import json

import cv2
import numpy as np
import pytest

from duet.utils.data.image.letterbox import Letterbox, fit_letterbox, fit_long_side
from duet.utils.data.masks.assemble import native_runs, prototype_masks
from duet.utils.data.masks.raster import index_map, separate
from duet.utils.data.masks.runs import areas, mask_of_runs, runs_of_mask
from duet.utils.geometry.boxes import Polygons, without_outlines
from tests.environments import shared_path
from tests.unit.data.compared import make_polygons

INPUTS = ["assemble_640x480_of_427x640", "assemble_640x640_of_1080x810"]


@pytest.fixture(params=INPUTS)
def stored(request):
    with np.load(shared_path(f"golden/segment/{request.param}.npz")) as arrays:
        yield dict(arrays)


def expected(stored, kind: str, like: str = "") -> np.ndarray:
    shape = tuple(stored[f"{like or kind}_shape"])
    return np.unpackbits(stored[kind])[: np.prod(shape)].reshape(shape) > 0


def prototypes_of(stored) -> np.ndarray:
    return stored["proto"].astype(np.float32)


def placement(stored) -> Letterbox:
    return fit_letterbox(tuple(stored["image_hw"].tolist()), tuple(stored["input_hw"].tolist()))


def whole_masks(prototypes, coefficients, boxes, letterbox: Letterbox) -> list[np.ndarray]:
    runs = native_runs(prototypes, coefficients, boxes, letterbox)
    return [mask_of_runs(row, letterbox.original_size) for row in runs.rows()]


def scores_at(prototypes, coefficients, size: tuple[int, int]) -> np.ndarray:
    """Scores (K, h, w) of all prototypes, enlarged to a size by OpenCV, in float64."""
    sums = np.tensordot(coefficients.astype(np.float64), prototypes.astype(np.float64), 1)
    return np.array([cv2.resize(1 / (1 + np.exp(-each)), size[::-1]) for each in sums])


def assert_same_masks(found, wanted, scores) -> None:
    """Hold masks against others of the same float32 arithmetic, in another order of the additions.

    The score of a pixel is of sums of up to 25: 2 roundings of that are 1e-6 of a score.
    """
    differs = np.asarray(found) != wanted
    assert (abs(scores[differs] - 0.5) < 1e-6).all(), np.argwhere(differs)[:10]


def test_prototype_size_masks_match_public_values(stored):
    prototypes = prototypes_of(stored)
    size = prototypes.shape[1:]
    scale = np.array(size[::-1] * 2, np.float32) / np.tile(stored["input_hw"][::-1], 2)
    boxes = stored["boxes"] * scale.astype(np.float32)
    found = prototype_masks(prototypes, stored["coef"], boxes)
    assert found.dtype == bool
    scores = scores_at(prototypes, stored["coef"], size)
    assert_same_masks(found, expected(stored, "low"), scores)


def test_native_size_masks_and_runs_match_public_values(stored):
    arguments = prototypes_of(stored), stored["coef"], stored["boxes_native"], placement(stored)
    prototypes, coefficients, _, letterbox = arguments
    masks = whole_masks(*arguments)
    scores = scores_at(over_image(prototypes, letterbox), coefficients, letterbox.original_size)
    assert_same_masks(masks, expected(stored, "native"), scores)
    for runs, mask in zip(native_runs(*arguments).rows(), masks, strict=True):
        assert runs.dtype == np.uint32
        np.testing.assert_array_equal(runs, runs_of_mask(mask))


def over_image(prototypes: np.ndarray, letterbox: Letterbox) -> np.ndarray:
    """The part of prototypes (M, h, w) that lies over the image in the input."""
    sides = letterbox.padding, letterbox.resized_size, letterbox.input_size, prototypes.shape[1:]
    (first, end), (start, stop) = (
        (before * small // large, (before + inside) * small // large)
        for before, inside, large, small in zip(*sides, strict=True)
    )
    return prototypes[:, first : max(end, first + 1), start : max(stop, start + 1)]


def random_masks(seed: int, count: int, size: tuple[int, int]):
    random = np.random.Generator(np.random.Philox(seed))
    prototypes = cv2.blur(random.standard_normal((*size, 8)), (5, 5)).transpose(2, 0, 1)
    return random, 9 * prototypes.astype(np.float32), random.standard_normal((count, 8)).astype("f")


@pytest.mark.parametrize("image_size", [(50, 37), (37, 50), (90, 260), (3, 61), (200, 150)])
def test_window_equals_the_enlarged_whole_mask(image_size):
    """The whole: sigmoid of all prototypes, enlarged by OpenCV, then cut by the box."""
    random, prototypes, coefficients = random_masks(sum(image_size), 20, (24, 32))
    letterbox = fit_long_side(image_size, 128, (96, 128) if image_size[1] > 150 else (128, 128))
    height, width = image_size
    corners = random.uniform(-0.2, 1.2, (20, 2, 2)) * [width, height]
    boxes = np.concatenate((corners.min(axis=1), corners.max(axis=1)), axis=1)
    boxes[0] = 0, 0, width, height
    y, x = np.mgrid[:height, :width]
    found = whole_masks(prototypes, coefficients, boxes, letterbox)
    for row, box, mask in zip(coefficients, boxes, found, strict=True):
        (large,) = scores_at(over_image(prototypes, letterbox), row[None], image_size)
        inside = (x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3])
        assert_same_masks(mask, (large > 0.5) & inside, large)


def test_no_objects_give_no_masks():
    prototypes = np.zeros((8, 16, 16), np.float32)
    nothing = np.zeros((0, 8), np.float32), np.zeros((0, 4), np.float32)
    assert prototype_masks(prototypes, *nothing).shape == (0, 16, 16)
    runs = native_runs(prototypes, *nothing, fit_letterbox((10, 20), (64, 64)))
    assert runs.num_rows == 0 and runs.values.dtype == np.uint32


def test_non_finite_coefficients_give_no_warning():
    prototypes = np.ones((2, 8, 8), np.float32)
    coefficients = np.array([[np.nan, 0], [np.inf, 0], [-1e38, -1e38], [1e30, 1e30]], np.float32)
    boxes = np.tile(np.array([0, 0, 32, 32], np.float32), (4, 1))
    masks = native_runs(prototypes, coefficients, boxes, fit_letterbox((32, 32), (32, 32)))
    assert areas(masks).tolist() == [0, 1024, 0, 1024]


def sha1(array: np.ndarray) -> str:
    return hashlib.sha1(array.tobytes()).hexdigest()


def coco_outlines(name: str, size: tuple[int, int]) -> Polygons:
    lines = shared_path(f"data/coco256/labels-seg/train2017/{name}").read_text().splitlines()
    rows = [np.array(line.split()[1:], np.float32).reshape(-1, 2) for line in lines]
    return make_polygons([row * np.array(size[::-1], np.float64) for row in rows])


def test_real_outlines_give_public_maps_bit_for_bit():
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


def test_synthetic_outlines_match_public_masks():
    with np.load(shared_path("golden/segment/polygons_to_masks.npz")) as stored:
        outlines = make_polygons([stored[f"synthetic_polygon_{index}"] for index in range(5)])
        numbers, value = index_map(outlines, (32, 40), 1)
        np.testing.assert_array_equal(numbers, stored["synthetic_overlap"])
        np.testing.assert_array_equal(np.argsort(value), stored["synthetic_order"])
        np.testing.assert_array_equal(separate(outlines, (32, 40), 1), stored["synthetic_separate"])


@pytest.mark.parametrize("ratio", [1, 2, 3, 4])
def test_partial_drawing_equals_drawing_the_whole(ratio):
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


def test_small_objects_overlay_large_ones_in_label_order():
    small = [(2, 2), (3, 2), (3, 3), (2, 3)]
    large = [(0, 0), (7, 0), (7, 7), (0, 7)]
    numbers, value = index_map(make_polygons([small, large, small]), (8, 8), 1)
    assert value.tolist() == [2, 1, 3]
    assert (numbers == 1).sum() == 60 and (numbers == 2).sum() == 0 and (numbers == 3).sum() == 4


def test_over_255_objects_use_a_wider_map_type():
    places = [(x, y) for y in range(16) for x in range(16)]
    points = [[place] for place in places]
    numbers, value = index_map(make_polygons(points[:255]), (16, 16), 1)
    assert numbers.dtype == np.uint8 and numbers.max() == 255
    numbers, value = index_map(make_polygons(points), (16, 16), 1)
    assert numbers.dtype == np.int64 and numbers.max() == 256
    np.testing.assert_array_equal(numbers.reshape(-1), value)


def test_invisible_objects_have_no_pixels():
    numbers, value = index_map(without_outlines(0), (8, 12), 4)
    assert (numbers.shape, numbers.dtype, numbers.any()) == ((2, 3), np.uint8, False)
    assert (value.shape, value.dtype) == ((0,), np.int64)
    assert separate(without_outlines(0), (8, 12), 4).shape == (0, 2, 3)
    outside = make_polygons([[], [(20, 20), (30, 20), (30, 30)], [(-9, -9), (-5, -9), (-5, -5)]])
    numbers, value = index_map(outside, (8, 12), 4)
    assert value.tolist() == [1, 2, 3] and not numbers.any()
