"""Letterboxing against stored public cases; tiles, crops and whole images as network input."""

import hashlib
import json
import math

import cv2
import numpy as np
import pytest

from duet.utils.data.image.letterbox import (
    Region,
    centre_region,
    centre_view,
    crop,
    fit_letterbox,
    fit_long_side,
    letterbox,
    place,
    resize,
    resize_linear,
    whole_view,
)
from duet.utils.geometry.tiling import MAX_OVERLAP, MIN_OVERLAP, Tiling
from tests.environments import shared_path

# float32 rounds coordinates of up to 1000 pixels to 6e-5; two operations each.
PIXELS = {"rtol": 1e-6, "atol": 1e-4}


def stored_cases() -> list[dict]:
    cases = json.loads(shared_path("golden/images/letterbox_cases.json").read_text())["cases"]
    # Filling the input by stretching, and leaving small images small, are not offered here.
    fills = [case for case in cases if not case.get("scaleFill")]
    return [case for case in fills if case.get("scaleup", True) or case["ratio"] != [1, 1]]


def placement_of(case: dict, image: np.ndarray):
    if case["auto"] and isinstance(case["new_shape"], int):
        return place(image.shape[:2], case["new_shape"], case.get("stride", 32))
    return fit_letterbox(image.shape[:2], tuple(case["out_shape"][:2]))


@pytest.fixture(scope="module")
def images() -> dict[str, np.ndarray]:
    with np.load(shared_path("golden/images/letterbox_inputs.npz")) as arrays:
        return dict(arrays)


def test_letterbox_shapes_and_padding_match_stored_values(images):
    cases = stored_cases()
    assert len(cases) == 31
    for case in cases:
        image = images[case["image"]]
        placement = placement_of(case, image)
        assert list(letterbox(image, placement).shape) == case["out_shape"]
        new_height, new_width = placement.resized_size
        ratio_width, ratio_height = case["ratio"]
        assert new_height == round(image.shape[0] * ratio_height)
        assert new_width == round(image.shape[1] * ratio_width)
        height, width = placement.input_size
        assert [(width - new_width) / 2, (height - new_height) / 2] == case["pad"]
        assert placement.padding == (math.floor(case["pad"][1]), math.floor(case["pad"][0]))


def test_letterboxed_pixels_match_stored_values(images):
    with np.load(shared_path("golden/images/letterbox_outputs.npz")) as outputs:
        stored = [case for case in stored_cases() if case["stored"]]
        assert len(stored) == 8
        shrunk = []
        for case in stored:
            placement = placement_of(case, images[case["image"]])
            found = letterbox(images[case["image"]], placement, resize_linear)
            np.testing.assert_array_equal(found, outputs[f"c{case['id']}"])
            shrunk.append(min(placement.scale))
        assert sum(scale < 0.5 for scale in shrunk) >= 1


def test_dataset_letterbox_sizes_match_stored_values():
    """Items of the public validation at 320 px: a scaled side is rounded up, 174.5 to 175."""
    items = json.loads(shared_path("golden/recipe/info.json").read_text())["rect_items"]
    assert len(items) == 5
    for item in items:
        (height, width), input_size = item["native_hw"], tuple(item["tensor"][1:])
        placement = fit_long_side((height, width), 320, input_size)
        np.testing.assert_allclose(placement.scale, item["ratio_hw"], rtol=1e-12)
        new_height, new_width = placement.resized_size
        free = [(input_size[1] - new_width) / 2, (input_size[0] - new_height) / 2]
        assert free == item["pad_wh"]


@pytest.mark.parametrize(
    ("size", "rounded_up", "nearest"),
    [
        ((349, 640), (175, 320), (174, 320)),  # 174.5: of two that are as near, the even one
        ((334, 500), (214, 320), (214, 320)),  # 213.76
        ((333, 500), (214, 320), (213, 320)),  # 213.12
        ((318, 424), (240, 320), (240, 320)),  # in float64, 318 * (320 / 424) is above 240
        ((355, 640), (178, 320), (178, 320)),  # 177.5
        ((1, 10000), (1, 320), (1, 320)),  # never nothing
        ((100, 150), (214, 320), (213, 320)),  # enlarged
    ],
)
def test_dataset_sides_round_up_and_others_to_nearest(size, rounded_up, nearest):
    for placement, resized in (
        (fit_long_side(size, 320, (352, 320)), rounded_up),
        (fit_letterbox(size, (352, 320)), nearest),
    ):
        assert placement.resized_size == resized
        top, left = placement.padding
        assert (top, left) == ((352 - resized[0]) // 2, (320 - resized[1]) // 2)
        box = np.array([[left, top, left + resized[1], top + resized[0]]], float)
        np.testing.assert_allclose(placement.to_original(box), [[0, 0, *size[::-1]]], atol=1e-9)
        np.testing.assert_allclose(placement.to_input(np.array([[0.0, 0, *size[::-1]]])), box)


def test_long_side_stays_exact_when_the_other_is_rounded():
    # The short side is 32.38 of 32 px: the image is not made smaller for that.
    assert place((254, 5271), 672, 32).resized_size == (32, 672)
    assert place((5271, 254), 672, 32).resized_size == (672, 32)


def test_shrinking_averages_all_pixels():
    checkerboard = np.zeros((64, 64, 3), np.uint8)
    checkerboard[::4] = 255  # a row in four: bilinear sampling at a quarter would see 0 or 255
    found = letterbox(checkerboard, fit_letterbox((64, 64), (16, 16)), resize)
    np.testing.assert_array_equal(found, 64)  # 255 / 4, rounded


def test_letterbox_scaling_matches_stored_boxes():
    with np.load(shared_path("golden/nms/boxes.npz")) as arrays:
        stored = dict(arrays)
    placement = fit_letterbox((480, 600), (640, 640))
    found = placement.to_original(stored["boxes"])
    np.testing.assert_allclose(found, stored["scale_auto_640x640_to_480x600"], **PIXELS)


def middle(image: np.ndarray, side: int) -> np.ndarray:
    return crop(image, centre_region(image.shape[:2], (side, side)), (side, side))


def test_centre_crops_match_stored_pixels():
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
def test_enlarged_small_image_matches_stored_pixels(side):
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
def test_centre_region_is_the_largest_of_its_shape(size, output, region):
    found = centre_region(size, output)
    assert found == Region(*region)
    placement = found.placement(output)
    assert placement.input_size == placement.resized_size == output
    assert placement.original_size == region[2:]


@pytest.mark.parametrize("overlap", [MIN_OVERLAP, 0.2, 0.5, MAX_OVERLAP])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 100, 127, 128, 129, 1000, 3333])
def test_tiles_are_evenly_spread_and_as_few_as_possible(length, overlap):
    side = 64
    tiling = Tiling(side, overlap)
    corners = tiling.corners((length, 1))
    assert {left for _, left in corners} == {0}
    tops = [top for top, _ in corners]
    assert tiling.tile_size((length, 1)) == (min(side, length), 1)
    assert tops[0] == 0 and tops[-1] + min(side, length) == length
    steps = np.diff(tops)
    if length > side:
        assert side - steps.max() >= side * overlap
        assert steps.max() - steps.min() <= 1
        # One tile less would lie further apart, on average, than the overlap permits.
        intervals = len(tops) - 1
        assert length - side > (intervals - 1) * (side - np.ceil(side * overlap))
    else:
        assert tops == [0]


def test_tiles_go_row_by_row():
    # 130 px: 66 beyond the first tile, at most 51 apart; 70 px: 6 beyond it.
    expected = [(top, left) for top in (0, 6) for left in (0, 33, 66)]
    assert Tiling(64, 0.2).corners((70, 130)) == expected
    assert Tiling(64, 0.2).corners((64, 64)) == [(0, 0)]


@pytest.mark.parametrize("fixed_size", [None, (24, 48)])
def test_classifier_view_is_the_image_centre(fixed_size):
    image = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    view = centre_view(image, 64, 32, fixed_size)
    if fixed_size is None:
        np.testing.assert_array_equal(view.pixels, image[:, 16:80])
        assert view.region_xyxy == (16, 0, 80, 64)
    else:
        assert view.pixels.shape == (24, 48, 3)
        assert view.region_xyxy == (0, 8, 96, 56)


def test_whole_view_covers_the_image():
    image = np.full((64, 96, 3), 200, np.uint8)
    view = whole_view(image, 96, 32, None)
    assert view.pixels.shape == (64, 96, 3) and view.region_xyxy == (0, 0, 96, 64)
