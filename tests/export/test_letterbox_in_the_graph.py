"""The letterbox of an exported graph shows the network what detect.py shows it."""

from __future__ import annotations

import numpy as np
import pytest

from duet.backend.onnx.recording import constant
from duet.models.export.letterboxed import (
    boxes_in_image,
    detections_in_image,
    fitted_size,
    letterboxed,
    rows_in_image,
)
from duet.utils.data.image.letterbox import fit_letterbox, letterbox, resize_linear
from tests.export.small_graphs import run_graph, shapes, small_graph

SIDES = (0, 1)
ENLARGED = [(20, 33), (1, 1), (61, 64), (1, 40)]
SHRUNK_BY_LESS_THAN_TWO = [(100, 75), (127, 128), (128, 128), (65, 3)]
SHRUNK_BY_MORE = [(129, 129), (200, 300), (640, 480), (1, 700), (700, 2), (131, 64)]


@pytest.fixture(scope="module", params=[(64, 64), (32, 96)], ids=str)
def size(request):
    return request.param


@pytest.fixture(scope="module")
def run(size):
    """The input of the network, and where the image lies in it."""

    def parts(image):
        images, placement = letterboxed(image, size)
        return images, *placement

    model = small_graph(parts, (48, 64, 3), "uint8", SIDES)
    assert shapes(model)["output0"] == (1, 3, *size)
    return run_graph(model)


@pytest.mark.parametrize("shape", ENLARGED + SHRUNK_BY_LESS_THAN_TWO + SHRUNK_BY_MORE, ids=str)
def test_images_are_within_one_grey_level(run, size, shape):
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), np.uint8)
    placement = fit_letterbox(shape, size)
    wanted = letterbox(image, placement, resize_linear)
    (images, scale, offset, limits) = run(image)
    found = images[0].transpose(1, 2, 0) * 255
    np.testing.assert_allclose(found, np.round(found), atol=1e-4)  # whole grey levels
    # OpenCV weighs the pixels of a byte image in steps of 1/2048 where it interpolates.
    np.testing.assert_allclose(found, wanted, atol=1.001)
    assert np.mean(np.abs(found - wanted) > 0.5) < 0.15
    np.testing.assert_array_equal(scale, np.float32([*placement.scale[::-1]] * 2))
    np.testing.assert_array_equal(offset, [*placement.padding[::-1]] * 2)
    np.testing.assert_array_equal(limits, [*shape[::-1]] * 2)


def test_an_image_that_is_halved_is_the_same():
    """Means of four pixels that end in a half go up."""
    image = np.random.default_rng(2).integers(0, 256, (128, 96, 3), np.uint8)
    model = small_graph(lambda given: letterboxed(given, (64, 64))[:1], (48, 64, 3), "uint8", SIDES)
    (images,) = run_graph(model)(image)
    blocks = image.reshape(64, 2, 48, 2, 3).sum(axis=(1, 3), dtype=np.int64)
    levels = images[0, :, :, 8:56].transpose(1, 2, 0) * 255
    np.testing.assert_allclose(levels, (blocks + 2) // 4, atol=1e-4)


@pytest.mark.parametrize("input_size", [(640, 640), (384, 640), (1280, 1280)])
def test_sizes_are_rounded_as_on_the_host(input_size):
    whole = constant(np.array(input_size, np.int64))
    run = run_graph(small_graph(lambda given: (fitted_size(given, whole),), (2,), "int64"))
    rng = np.random.default_rng(3)
    originals = rng.integers(1, 3000, (300, 2)).tolist()
    # 3 of 768 becomes 2.5 of 640, but for the rounding of the factor; the sides are at their end.
    originals += [(side, width) for width in (768, 1024, 1280, 1536, 2560) for side in range(1, 60)]
    originals += [(1, 1), (1, 16384), (16384, 1), input_size]
    for original in originals:
        (found,) = run(np.array(original))
        assert tuple(found) == fit_letterbox(original, input_size).resized_size, original


def test_boxes_return_to_pixels_of_the_image():
    """An image of 200 x 100 is 64 x 32 of the input, at 16 from the top: 0.32 of its size."""
    rows = np.array([[[32, 32, 64, 32, 0.5, 1], [48, 24, 32, 16, 0.25, 1]]], np.float32)

    def parts(image):
        _, placement = letterboxed(image, (64, 64))
        corners = [[0, 16, 64, 48, 0.5, 1], [32, 10, 90, 32, 0.25, 2], [0, 0, 0, 0, 0, 0]]
        found = constant(np.array([corners], np.float32))
        return (
            rows_in_image(constant(rows), placement),
            detections_in_image(found, placement),
            boxes_in_image(found[..., 0:4], placement),
        )

    run = run_graph(small_graph(parts, (100, 200, 3), "uint8", SIDES))
    found_rows, found, boxes = run(np.zeros((100, 200, 3), np.uint8))
    wanted_rows = [[[100, 50, 200, 100, 0.5, 1], [150, 25, 100, 50, 0.25, 1]]]
    np.testing.assert_allclose(found_rows, wanted_rows, rtol=1e-6)
    wanted = [[0, 0, 200, 100, 0.5, 1], [100, 0, 200, 50, 0.25, 2], [0, 0, 0, 0, 0, 0]]
    np.testing.assert_allclose(found, [wanted], rtol=1e-6)
    np.testing.assert_array_equal(found[0, 2], np.zeros(6))
    np.testing.assert_array_equal(boxes, found[..., :4])
