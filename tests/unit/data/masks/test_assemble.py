"""Masks of prototypes at every size, against the stored public ones."""

import cv2
import numpy as np
import pytest

from duet.utils.data.image.letterbox import Letterbox, fit_letterbox, fit_long_side
from duet.utils.data.masks.assemble import masks_at, native_runs, native_windows
from duet.utils.data.masks.runs import areas, mask_of_runs, runs_of_mask
from tests.shared_files import shared_path

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


def test_masks_of_the_input_are_the_public_ones(stored):
    size = tuple(stored["input_hw"].tolist())
    prototypes, coefficients = prototypes_of(stored), stored["coef"]
    found = masks_at(prototypes, coefficients, stored["boxes"], size)
    assert found.dtype == bool
    assert_same_masks(found, expected(stored, "up"), scores_at(prototypes, coefficients, size))


def test_masks_at_the_size_of_the_prototypes_are_the_public_ones(stored):
    prototypes = prototypes_of(stored)
    size = prototypes.shape[1:]
    scale = np.array(size[::-1] * 2, np.float32) / np.tile(stored["input_hw"][::-1], 2)
    boxes = stored["boxes"] * scale.astype(np.float32)
    found = masks_at(prototypes, stored["coef"], boxes, size)
    scores = scores_at(prototypes, stored["coef"], size)
    assert_same_masks(found, expected(stored, "low"), scores)


def test_masks_in_pixels_of_the_image_are_the_public_ones_in_every_form(stored):
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
def test_a_window_has_the_pixels_of_the_whole_mask_enlarged(image_size):
    """The whole: sigmoid of all prototypes, enlarged by OpenCV, then cut by the box."""
    random, prototypes, coefficients = random_masks(sum(image_size), 20, (24, 32))
    letterbox = fit_long_side(image_size, 128, (96, 128) if image_size[1] > 150 else (128, 128))
    height, width = image_size
    corners = random.uniform(-0.2, 1.2, (20, 2, 2)) * [width, height]
    boxes = np.concatenate((corners.min(axis=1), corners.max(axis=1)), axis=1)
    boxes[0] = 0, 0, width, height
    y, x = np.mgrid[:height, :width]
    windows = native_windows(prototypes, coefficients, boxes, letterbox)
    found = whole_masks(prototypes, coefficients, boxes, letterbox)
    for row, box, mask, window in zip(coefficients, boxes, found, windows, strict=True):
        (large,) = scores_at(over_image(prototypes, letterbox), row[None], image_size)
        inside = (x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3])
        assert_same_masks(mask, (large > 0.5) & inside, large)
        np.testing.assert_array_equal(mask.sum(), window.pixels.sum())
        assert window.pixels.size <= (box[2] - box[0] + 1) * (box[3] - box[1] + 1)


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
