"""Transforms of --albumentations: which are read, and what they do to a sample."""

import json
import subprocess
import sys

import cv2
import numpy as np
import pytest

from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.augment.transforms import require_transforms, transform
from duet.utils.data.image.decoding import LabelledImage
from duet.utils.errors import UserError
from duet.utils.transform_list import read_transforms

NOISE = (np.random.Generator(np.random.Philox(0)).random((64, 64, 3)) * 255).astype(np.uint8)
FOUR = {"Blur": {}, "MedianBlur": {}, "ToGray": {}, "CLAHE": {}}


def item(image=NOISE) -> LabelledImage:
    return LabelledImage(image.copy(), np.array([3]), np.array([[8.0, 8, 40, 32]]))


def changed(document, image=NOISE, seed=0) -> np.ndarray:
    return transform(item(image), json.dumps(document), seed).image


def read(tmp_path, text: str) -> str:
    path = tmp_path / "transforms.yaml"
    path.write_text(text, encoding="utf-8")
    return read_transforms(str(path))


def test_no_file_is_no_transform_and_the_flag_alone_is_the_public_set():
    assert parse_train_flags([]).albumentations == ""
    text = parse_train_flags(["--albumentations"]).albumentations
    assert json.loads(text) == {name: {"p": 0.01} for name in FOUR}
    assert parse_train_flags(["--albumentations", "public.yaml"]).albumentations == text
    require_transforms(text)


def test_a_file_names_transforms_in_order_with_their_arguments(tmp_path):
    text = read(tmp_path, "ToGray:\nBlur: {p: 0.5, blur_limit: [3, 7]}\n")
    assert text == '{"ToGray": {}, "Blur": {"p": 0.5, "blur_limit": [3, 7]}}'
    require_transforms(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("os.system: {}", "'os.system' is not a transform name such as Blur"),
        ("7: {}", "7 is not a transform name such as Blur"),
        ("Blur: 0.5", "Blur: 0.5; accepted: arguments by name, as in {p: 0.5}"),
        ("{}", "no transforms; add a line such as Blur"),
        ("Blur: {p: 1}\nBlur: {p: 0}", "the key 'Blur' appears twice"),
        ("Blur: !!python/object:os.system {}", "the tag"),
    ],
)
def test_what_is_no_list_of_transforms_is_refused(tmp_path, text, message):
    with pytest.raises(UserError) as error:
        read(tmp_path, text)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["[]", "x", '{"a b": {}}', '{"Blur": 1}', '"Blur"'])
def test_the_text_of_a_state_from_elsewhere_is_checked_too(text):
    with pytest.raises(UserError, match="--albumentations"):
        transform(item(), text, 0)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *[("ToGray", {"p": value}) for value in (-0.1, 1.1, True, "1", None, [0, 1])],
        ("ToGray", {"num_output_channels": 1}),
        ("Blur", {"radius": 3}),
        *[("Blur", {"blur_limit": value}) for value in (2, 257, 3.0, [7, 3], [4, 4], [1, 7], [3])],
        *[("CLAHE", {"clip_limit": value}) for value in (0.5, [4, 1], 1001, ["1", 4])],
        *[("CLAHE", {"tile_grid_size": value}) for value in (8, [8], [0, 8], [8.0, 8], [8, 256])],
    ],
)
def test_arguments_that_a_filter_does_not_take_are_refused(name, given):
    with pytest.raises(UserError) as error:
        require_transforms(json.dumps({name: given}))
    message = f"--albumentations: {name}: {given}; accepted: p: 0.5 (0 to 1)"
    assert str(error.value).startswith(message)


def test_grey_has_three_equal_channels_of_the_weights_of_bt_601():
    found = changed({"ToGray": {"p": 1}})
    assert (found == cv2.cvtColor(NOISE, cv2.COLOR_BGR2GRAY)[..., None]).all()
    expected = NOISE.astype(float) @ [0.114, 0.587, 0.299]
    # Rounded, from weights in fixed point.
    np.testing.assert_allclose(found[..., 1], expected, atol=0.51)


def test_a_blurred_point_is_a_box():
    point = np.zeros((64, 64, 3), np.uint8)
    point[30, 20] = 250
    expected = np.zeros_like(point)
    expected[28:33, 18:23] = 250 // 25
    found = changed({"Blur": {"p": 1, "blur_limit": [5, 5]}}, point)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("side", [3, 5])
def test_a_median_is_that_of_the_window_of_each_channel(side):
    found = changed({"MedianBlur": {"p": 1, "blur_limit": [side, side]}})
    windows = np.lib.stride_tricks.sliding_window_view(NOISE, (side, side), axis=(0, 1))
    inner = slice(side // 2, -(side // 2))
    np.testing.assert_array_equal(found[inner, inner], np.median(windows, axis=(3, 4)))


@pytest.mark.parametrize(
    ("limit", "sides"),
    [(None, {3, 5, 7}), (5, {3, 5}), ([5, 9], {5, 7, 9}), ([4, 8], {5, 7}), ([7, 7], {7})],
)
@pytest.mark.parametrize("name", ["Blur", "MedianBlur"])
def test_all_odd_sizes_of_a_range_are_drawn(name, limit, sides):
    given = {"p": 1} if limit is None else {"p": 1, "blur_limit": limit}
    plain = {
        side: {"Blur": cv2.blur(NOISE, (side, side)), "MedianBlur": cv2.medianBlur(NOISE, side)}
        for side in range(3, 11, 2)
    }
    found = [changed({name: given}, seed=seed) for seed in range(40)]
    drawn = [[side for side, of in plain.items() if (of[name] == one).all()] for one in found]
    assert {side for [side] in drawn} == sides


def lab(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image, cv2.COLOR_BGR2LAB)


PASTEL = (NOISE // 4 + 96).astype(np.uint8)  # colours that stay within sRGB in any lightness here


def test_clahe_spreads_lightness_and_leaves_colour():
    found = changed({"CLAHE": {"p": 1}}, PASTEL)
    assert lab(found)[..., 0].std() > 1.1 * lab(PASTEL)[..., 0].std()
    # Three roundings to 8 bits: of LAB, of BGR, of LAB again.
    difference = lab(found)[..., 1:].astype(int) - lab(PASTEL)[..., 1:]
    assert np.abs(difference).max() <= 2


@pytest.mark.parametrize(("p", "lowest", "highest"), [(0, 0, 0), (1, 200, 200), (0.5, 72, 128)])
@pytest.mark.parametrize("name", FOUR)
def test_p_is_the_probability(name, p, lowest, highest):
    """Of 200 samples; four standard deviations of a binomial of 0.5 are 28."""
    done = sum((changed({name: {"p": p}}, seed=seed) != NOISE).any() for seed in range(200))
    assert lowest <= done <= highest


def test_a_result_is_a_function_of_the_seed_and_objects_stay():
    first = [transform(item(), json.dumps(FOUR), seed) for seed in range(20)]
    second = [transform(item(), json.dumps(FOUR), seed) for seed in reversed(range(20))][::-1]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.image, other.image)
        np.testing.assert_array_equal(one.boxes_xyxy, item().boxes_xyxy)
    assert len({one.image.tobytes() for one in first}) > 10


ALONE = """
import socket, sys
def refuse(*arguments, **named): raise AssertionError(f"network: {arguments}")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from duet.utils.data.augment.transforms import require_transforms
from duet.utils.transform_list import PUBLIC_TRANSFORMS, read_transforms
require_transforms(read_transforms(str(PUBLIC_TRANSFORMS)))
assert not {"albumentations", "torch", "oneflow"} & set(sys.modules)
"""


def test_the_public_four_need_neither_the_package_nor_the_network_nor_a_framework():
    command = [sys.executable, "-W", "error", "-c", ALONE]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_another_transform_is_refused_and_the_four_are_named():
    with pytest.raises(UserError) as error:
        require_transforms('{"Blur": {}, "Blurr": {}}')
    assert str(error.value) == (
        "--albumentations: 'Blurr' is not supported; accepted: Blur, MedianBlur, ToGray, CLAHE"
    )
