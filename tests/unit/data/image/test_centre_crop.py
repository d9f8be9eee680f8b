"""The middle of an image as a classifier takes it, against stored pixels of the public one."""

import hashlib
import json

import cv2
import numpy as np
import pytest

from tests.shared_files import shared_path
from utils.data.image.letterbox import Region, centre_region, crop


def middle(image: np.ndarray, side: int) -> np.ndarray:
    return crop(image, centre_region(image.shape[:2], (side, side)), (side, side))


def test_crops_of_photographs_have_the_stored_pixels():
    photographs = shared_path("data/coco256")
    cases = json.loads(shared_path("golden/classify/info.json").read_text())["preprocess"]
    assert cases
    for case in cases:
        image = cv2.imread(str(next(photographs.rglob(case["file"]))))
        if hashlib.sha1(image.tobytes()).hexdigest() != case["decoded_bgr_sha1"]:
            pytest.skip("another JPEG decoder")
        found = middle(image, case["size"])
        assert hashlib.sha1(found.tobytes()).hexdigest() == case["crop_bgr_u8_sha1"], case["file"]


@pytest.mark.parametrize("side", [64, 160])
def test_a_small_image_is_enlarged_to_the_stored_pixels(side):
    with np.load(shared_path("golden/classify/preprocess.npz")) as stored:
        found = middle(stored["synthetic_bgr"], side)
        if side == 64:
            np.testing.assert_array_equal(found, stored["synthetic_crop_bgr_64"])
        mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
        normalised = (found[..., ::-1] / 255 - mean) / std
        # Stored as float32, up to 2.7 in size: rounding of 3e-7.
        expected = stored[f"synthetic_tensor_rgb_{side}"].transpose(1, 2, 0)
        np.testing.assert_allclose(normalised, expected, rtol=0, atol=5e-7)


@pytest.mark.parametrize(
    ("size", "output", "region"),
    [
        ((426, 640), (224, 224), (0, 107, 426, 426)),
        ((640, 427), (128, 128), (106, 0, 427, 427)),
        ((100, 100), (64, 64), (0, 0, 100, 100)),
        ((300, 300), (64, 128), (75, 0, 150, 300)),
        ((10, 4000), (64, 64), (0, 1995, 10, 10)),
        ((10, 4000), (4000, 10), (0, 1999, 10, 1)),
    ],
)
def test_the_region_is_the_largest_of_its_shape_in_the_middle(size, output, region):
    found = centre_region(size, output)
    assert found == Region(*region)
    placement = found.placement(output)
    assert placement.input_size == placement.resized_size == output
    assert placement.original_size == region[2:]


def test_a_crop_of_the_size_that_is_asked_for_is_not_resized():
    image = np.arange(5 * 9 * 3, dtype=np.uint8).reshape(5, 9, 3)
    found = middle(image, 5)
    np.testing.assert_array_equal(found, image[:, 2:7])
    assert found.flags.c_contiguous
