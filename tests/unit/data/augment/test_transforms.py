"""Transforms of --albumentations: what they do to a sample."""

import hashlib

import cv2
import numpy as np
import pytest

from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.augment.transforms import FILTERS, transform
from duet.utils.data.image.decoding import LabelledImage
from duet.utils.errors import UserError

NOISE = (np.random.Generator(np.random.Philox(0)).random((64, 64, 3)) * 255).astype(np.uint8)


def item(image=NOISE) -> LabelledImage:
    return LabelledImage(image.copy(), np.array([3]), np.array([[8.0, 8, 40, 32]]))


def test_the_flag_alone_is_the_public_probability():
    assert parse_train_flags([]).albumentations == 0
    assert parse_train_flags(["--albumentations"]).albumentations == 0.01
    assert parse_train_flags(["--albumentations", "0.2"]).albumentations == 0.2
    for wrong in ("mine.yaml", "1.5"):
        with pytest.raises(UserError, match=f"--albumentations.*{wrong}"):
            parse_train_flags(["--albumentations", wrong])


def test_grey_has_three_equal_channels_of_the_weights_of_bt_601():
    found = FILTERS["ToGray"](NOISE, 0.5)
    assert (found == cv2.cvtColor(NOISE, cv2.COLOR_BGR2GRAY)[..., None]).all()
    expected = NOISE.astype(float) @ [0.114, 0.587, 0.299]
    # Rounded, from weights in fixed point.
    np.testing.assert_allclose(found[..., 1], expected, atol=0.51)


def test_a_blurred_point_is_a_box():
    point = np.zeros((64, 64, 3), np.uint8)
    point[30, 20] = 250
    expected = np.zeros_like(point)
    expected[28:33, 18:23] = 250 // 25
    found = FILTERS["Blur"](point, 0.5)
    np.testing.assert_array_equal(found, expected)


def test_a_median_is_that_of_the_window_of_each_channel():
    windows = np.lib.stride_tricks.sliding_window_view(NOISE, (5, 5), axis=(0, 1))
    found = FILTERS["MedianBlur"](NOISE, 0.5)
    np.testing.assert_array_equal(found[2:-2, 2:-2], np.median(windows, axis=(3, 4)))


@pytest.mark.parametrize("name", ["Blur", "MedianBlur"])
def test_all_sizes_are_drawn(name):
    plain = {
        side: {"Blur": cv2.blur(NOISE, (side, side)), "MedianBlur": cv2.medianBlur(NOISE, side)}
        for side in range(3, 11, 2)
    }
    found = [FILTERS[name](NOISE, draw) for draw in (0, 0.3, 0.4, 0.6, 0.7, 1 - 2**-53)]
    drawn = [[side for side, of in plain.items() if (of[name] == one).all()] for one in found]
    assert drawn == [[3], [3], [5], [5], [7], [7]]


def lab(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image, cv2.COLOR_BGR2LAB)


PASTEL = (NOISE // 4 + 96).astype(np.uint8)  # colours that stay within sRGB in any lightness here


def test_clahe_spreads_lightness_and_leaves_colour():
    found = FILTERS["CLAHE"](PASTEL, 0.5)
    assert lab(found)[..., 0].std() > 1.1 * lab(PASTEL)[..., 0].std()
    # Three roundings to 8 bits: of LAB, of BGR, of LAB again.
    difference = lab(found)[..., 1:].astype(int) - lab(PASTEL)[..., 1:]
    assert np.abs(difference).max() <= 2


@pytest.mark.parametrize(("p", "lowest", "highest"), [(0, 0, 0), (1, 200, 200), (0.25, 112, 162)])
def test_p_is_the_probability_of_each(p, lowest, highest):
    """Of 200 samples, 1 - 0.75**4 change: 137, with a standard deviation of 6.6."""
    done = sum((transform(item(), p, seed).image != NOISE).any() for seed in range(200))
    assert lowest <= done <= highest


def test_a_result_is_a_function_of_the_seed_and_objects_stay():
    first = [transform(item(), 0.5, seed) for seed in range(20)]
    second = [transform(item(), 0.5, seed) for seed in reversed(range(20))][::-1]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.image, other.image)
        np.testing.assert_array_equal(one.boxes_xyxy, item().boxes_xyxy)
    assert len({one.image.tobytes() for one in first}) > 10
    digest = hashlib.sha256(b"".join(one.image.tobytes() for one in first)).hexdigest()
    assert digest[:12] == "2a5f73b53039"  # stored
