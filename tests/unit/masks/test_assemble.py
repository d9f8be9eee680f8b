"""Masks of prototypes at every size, against the stored public ones."""

import tracemalloc

import cv2
import numpy as np
import pytest

from tests.shared_files import shared_path
from utils.data.image.letterbox import Letterbox, fit_letterbox, fit_long_side
from utils.masks.assemble import masks_at, native_runs, native_windows
from utils.masks.runs import areas, mask_of_runs, runs_of_mask

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


def test_masks_of_the_input_are_the_public_ones(stored):
    size = tuple(stored["input_hw"].tolist())
    found = masks_at(prototypes_of(stored), stored["coef"], stored["boxes"], size)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, expected(stored, "up"))


def test_masks_of_an_image_that_fills_the_input_are_the_public_ones(stored):
    size = tuple(stored["input_hw"].tolist())
    arguments = prototypes_of(stored), stored["coef"], stored["boxes"], fit_letterbox(size, size)
    np.testing.assert_array_equal(whole_masks(*arguments), expected(stored, "crop_after_up", "up"))


def test_masks_at_the_size_of_the_prototypes_are_the_public_ones(stored):
    prototypes = prototypes_of(stored)
    size = prototypes.shape[1:]
    scale = np.array(size[::-1] * 2, np.float32) / np.tile(stored["input_hw"][::-1], 2)
    boxes = stored["boxes"] * scale.astype(np.float32)
    found = masks_at(prototypes, stored["coef"], boxes, size)
    np.testing.assert_array_equal(found, expected(stored, "low"))


def test_masks_in_pixels_of_the_image_are_the_public_ones_in_every_form(stored):
    arguments = prototypes_of(stored), stored["coef"], stored["boxes_native"], placement(stored)
    native = expected(stored, "native")
    np.testing.assert_array_equal(whole_masks(*arguments), native)
    for runs, wanted in zip(native_runs(*arguments).rows(), native, strict=True):
        assert runs.dtype == np.uint32
        np.testing.assert_array_equal(runs, runs_of_mask(wanted))


def random_masks(seed: int, count: int, size: tuple[int, int]):
    random = np.random.Generator(np.random.Philox(seed))
    prototypes = cv2.blur(random.standard_normal((*size, 8)), (5, 5)).transpose(2, 0, 1)
    return random, 9 * prototypes.astype(np.float32), random.standard_normal((count, 8)).astype("f")


@pytest.mark.parametrize("image_size", [(50, 37), (37, 50), (90, 260), (3, 61), (200, 150)])
def test_a_window_has_the_pixels_of_the_whole_mask_enlarged(image_size):
    """The whole: sigmoid of all prototypes, enlarged by OpenCV, then cut by the box."""
    random, prototypes, coefficients = random_masks(sum(image_size), 20, (24, 32))
    letterbox = fit_long_side(image_size, 128, (96, 128) if image_size[1] > 150 else (128, 128))
    height, width = image_size
    corners = random.uniform(-0.2, 1.2, (20, 2, 2)) * [width, height]
    boxes = np.concatenate((corners.min(axis=1), corners.max(axis=1)), axis=1)
    boxes[0] = 0, 0, width, height
    input_height, input_width = letterbox.input_size
    (top, left), (inside_height, inside_width) = letterbox.padding, letterbox.resized_size
    first, end = top * 24 // input_height, (top + inside_height) * 24 // input_height
    start, stop = left * 32 // input_width, (left + inside_width) * 32 // input_width
    y, x = np.mgrid[:height, :width]
    windows = native_windows(prototypes, coefficients, boxes, letterbox)
    found = whole_masks(prototypes, coefficients, boxes, letterbox)
    for row, box, mask, window in zip(coefficients, boxes, found, windows, strict=True):
        scores = 1 / (1 + np.exp(-np.tensordot(row, prototypes, 1)))
        scores = scores[first : max(end, first + 1), start : max(stop, start + 1)]
        large = cv2.resize(np.ascontiguousarray(scores), (width, height))
        inside = (x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3])
        # A pixel at the threshold may fall on either side of it.
        differs = mask != ((large > 0.5) & inside)
        assert (abs(large[differs] - 0.5) < 1e-5).all()
        np.testing.assert_array_equal(mask.sum(), window.pixels.sum())
        assert window.pixels.size <= (box[2] - box[0] + 1) * (box[3] - box[1] + 1)


def test_boxes_without_pixels_give_empty_masks():
    _, prototypes, coefficients = random_masks(0, 5, (16, 16))
    boxes = np.array(
        [
            [5, 5, 5, 5],
            [9, 9, 3, 3],
            [-20, -20, -5, -5],
            [100, 100, 200, 200],
            [np.nan, np.nan, np.nan, np.nan],
        ],
        np.float32,
    )
    letterbox = fit_letterbox((64, 64), (64, 64))
    assert native_runs(prototypes, coefficients, boxes, letterbox).values.tolist() == [4096] * 5
    assert not masks_at(prototypes, coefficients, boxes, (64, 64)).any()


def test_no_object_gives_no_mask():
    prototypes = np.zeros((8, 16, 16), np.float32)
    nothing = np.zeros((0, 8), np.float32), np.zeros((0, 4), np.float32)
    assert masks_at(prototypes, *nothing, (32, 48)).shape == (0, 32, 48)
    runs = native_runs(prototypes, *nothing, fit_letterbox((10, 20), (64, 64)))
    assert runs.num_rows == 0 and runs.values.dtype == np.uint32


def test_numbers_that_are_none_or_infinite_give_no_pixels_and_no_warning():
    prototypes = np.ones((2, 8, 8), np.float32)
    coefficients = np.array([[np.nan, 0], [np.inf, 0], [-1e38, -1e38], [1e30, 1e30]], np.float32)
    boxes = np.tile(np.array([0, 0, 32, 32], np.float32), (4, 1))
    masks = native_runs(prototypes, coefficients, boxes, fit_letterbox((32, 32), (32, 32)))
    assert areas(masks).tolist() == [0, 1024, 0, 1024]


def test_300_masks_of_a_large_image_take_little_memory():
    random, prototypes, coefficients = random_masks(1, 300, (40, 40))
    size = (3000, 4000)
    corners = random.random((300, 2, 2)) * [400, 300] + random.random((300, 1, 2)) * [3600, 2700]
    boxes = np.concatenate((corners.min(axis=1), corners.max(axis=1)), axis=1)
    boxes[:2] = 0, 0, 4000, 3000
    letterbox = fit_letterbox(size, (160, 160))
    tracemalloc.start()
    runs = native_runs(prototypes, coefficients, boxes, letterbox)
    peak = tracemalloc.get_traced_memory()[1] - runs.values.nbytes
    tracemalloc.stop()
    assert runs.num_rows == 300
    assert peak < 100_000_000  # 300 whole masks are 3.6e9 bytes
