"""RandAugment's operations: what each does to shades and places, and how they are drawn."""

import numpy as np
import pytest

from utils.data.augment.class_sample import (
    NUM_DRAWS,
    OPERATIONS,
    Operation,
    apply,
    draw_operations,
)

RAMP = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
NOISE = np.random.default_rng(3).integers(0, 256, (24, 36, 3), np.uint8)


def one(name: str, strength: float, image: np.ndarray = RAMP) -> np.ndarray:
    return apply(image, [Operation(name, strength)])


@pytest.mark.parametrize("name", list(OPERATIONS))
@pytest.mark.parametrize("strength", [-1.0, -0.3, 0.3, 1.0])
def test_every_operation_keeps_shape_and_type_and_its_argument(name, strength):
    for image in (NOISE, np.zeros((5, 7, 3), np.uint8), np.full((1, 1, 3), 255, np.uint8)):
        before = image.copy()
        found = one(name, strength, image)
        assert found.shape == image.shape and found.dtype == np.uint8
        np.testing.assert_array_equal(image, before)
        np.testing.assert_array_equal(one(name, strength, image), found)


def test_operations_on_shades():
    shades = RAMP[0, :, 0].astype(int)
    solarised = one("solarize", 0.25)[0, :, 0]
    np.testing.assert_array_equal(solarised, np.where(shades >= 192, 255 - shades, shades))
    np.testing.assert_array_equal(one("posterize", -1.0)[0, :, 1], shades // 16 * 16)
    np.testing.assert_array_equal(one("posterize", 0.5)[0, :, 1], shades // 4 * 4)
    # Half the way to black, rounded; and 1.9 times as bright.
    np.testing.assert_allclose(one("brightness", -0.5)[0, :, 2], shades * 0.55, atol=0.51)
    np.testing.assert_allclose(
        one("brightness", 1.0)[0, :, 2], np.minimum(shades * 1.9, 255), atol=0.51
    )
    np.testing.assert_allclose(one("contrast", -1.0)[0, :, 0], 128 + (shades - 128) * 0.1, atol=0.6)


def test_contrast_is_stretched_over_all_shades():
    narrow = (RAMP // 4 + 100).astype(np.uint8)  # 100 to 163
    found = one("auto contrast", 1.0, narrow)
    expected = (narrow.astype(int) - 100) * 255 // 63
    np.testing.assert_array_equal(found, expected)
    assert one("equalize", 1.0, narrow).min() == 0 and one("equalize", 1.0, narrow).max() == 255


@pytest.mark.parametrize(
    ("name", "to_x", "to_y"),
    [("translate x", 0.45 * 40, 0), ("translate y", 0, 0.45 * 40), ("identity", 0, 0)],
)
@pytest.mark.parametrize("strength", [-0.5, 0.5])
def test_shifts_move_by_a_part_of_the_side(name, to_x, to_y, strength):
    image = np.zeros((40, 40, 3), np.uint8)
    image[18:22, 18:22] = 255
    found = one(name, strength, image)
    y, x = (found[..., 0].astype(float) * grid for grid in np.mgrid[:40, :40])
    bright = found[..., 0] == 255
    rows, columns = np.nonzero(bright)
    assert rows.mean() - 19.5 == pytest.approx(strength * to_y, abs=0.5)
    assert columns.mean() - 19.5 == pytest.approx(strength * to_x, abs=0.5)
    assert set(np.unique(found[0])) | set(np.unique(found[-1])) <= {0, 114}


def test_each_operation_is_drawn_about_equally_often_with_either_sign():
    draws = np.random.default_rng(0).random((4000, NUM_DRAWS))
    drawn = [x for row in draws for x in draw_operations(0.3, row.tolist())]
    names = [name for name, _ in drawn]
    # 8,000 draws of 14: 571 each, standard deviation 23.
    assert {name: abs(names.count(name) - 571) < 115 for name in OPERATIONS} == dict.fromkeys(
        OPERATIONS, True
    )
    assert {x.strength for x in drawn} == {-0.3, 0.3}
    assert draw_operations(0.0, [0.5] * NUM_DRAWS) == ()
    assert len(draw_operations(1.0, [1 - 2**-53] * NUM_DRAWS)) == 2
