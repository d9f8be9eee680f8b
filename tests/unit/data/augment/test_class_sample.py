"""Random changes to images of a class: the crops that are drawn, and what happens to a label."""

import dataclasses

import numpy as np
import pytest

from duet.utils.data.augment.class_sample import (
    NUM_DRAWS,
    OPERATIONS,
    Operation,
    apply,
    augment_class,
    draw_class_augmentation,
    draw_operations,
    random_region,
    shortest_side,
)
from duet.utils.data.image.decoding import SourceImage
from duet.utils.data.image.letterbox import reduced_size
from duet.utils.data.randomness import sample_generator
from duet.utils.strengths import AugmentConfig
from tests.unit.data.batch_digest import OF_CLASSES

STRONG = OF_CLASSES
NOTHING = AugmentConfig()


def drawn(config: AugmentConfig, number: int):
    return [
        draw_class_augmentation(config, sample_generator(1, 2, index), index)
        for index in range(number)
    ]


def source(image: np.ndarray, reduction: int = 1, size=None) -> SourceImage:
    size = size or image.shape[:2]
    boxes = np.array([[0, 0, size[1], size[0]]], np.float64)
    return SourceImage(size, np.array([3]), boxes, None, reduction, lambda: image)


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def test_without_strengths_the_middle_is_taken_as_it_is():
    image = noise(40, 60)
    (draw,) = drawn(NOTHING, 1)
    found = augment_class(draw, source(image), (40, 40))
    np.testing.assert_array_equal(found.image, image[:, 10:50])
    assert found.class_index.tolist() == [3]
    assert found.boxes_xyxy.tolist() == [[0, 0, 40, 40]]


def test_crops_have_the_areas_and_shapes_that_are_promised():
    size = 300, 400
    regions = [random_region(draw, size, (224, 224)) for draw in drawn(STRONG, 3000)]
    areas = np.array([x.height * x.width / (300 * 400) for x in regions])
    aspects = np.log([x.width / x.height for x in regions])
    assert areas.min() > 0.078 and areas.max() <= 1  # sides are rounded to pixels
    # Up to a half all shapes fit: uniform there, about 1,600 of them.
    small = areas[areas < 0.5]
    assert abs(small.mean() - 0.29) < 0.01 and abs(np.mean(small < 0.185) - 0.25) < 0.04
    assert np.abs(aspects).max() < np.log(4 / 3) + 0.02
    tops = np.array([x.top / max(300 - x.height, 1) for x in regions if x.height < 200])
    assert tops.min() < 0.02 and tops.max() > 0.98 and abs(tops.mean() - 0.5) < 0.03
    for region in regions:
        assert region.top >= 0 and region.top + region.height <= 300
        assert region.left >= 0 and region.left + region.width <= 400


@pytest.mark.parametrize("size", [(10, 2000), (2000, 10), (1, 1), (3, 2)])
def test_images_of_any_shape_give_a_crop(size):
    for draw in drawn(STRONG, 50):
        region = random_region(draw, size, (32, 32))
        assert min(region.height, region.width) >= 1
        assert region.top + region.height <= size[0] and region.left + region.width <= size[1]


def test_no_crop_is_smaller_than_the_bound_by_which_images_are_decoded():
    size = 600, 800
    sides = [min(x.height, x.width) for x in (random_region(d, size, size) for d in
             drawn(dataclasses.replace(NOTHING, scale=1.0), 3000))]  # fmt: skip
    assert shortest_side(size) - 1 <= min(sides) < shortest_side(size) + 10


def test_a_crop_of_an_image_decoded_at_half_its_size_shows_the_same_part():
    rows, columns = np.mgrid[:400, :600] / [[[400]], [[600]]] * 255
    image = np.stack([rows, columns, rows], axis=2).astype(np.uint8)
    half = image.reshape(200, 2, 300, 2, 3).mean(axis=(1, 3)).astype(np.uint8)
    assert half.shape[:2] == reduced_size((400, 600), 2)
    for draw in drawn(AugmentConfig(scale=0.92), 20):
        full = augment_class(draw, source(image), (64, 64)).image.astype(int)
        small = augment_class(draw, source(half, 2, (400, 600)), (64, 64)).image.astype(int)
        # A region is rounded to pixels, twice as large in the half: by two of 400 rows.
        assert np.abs(full - small).max() <= 4


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
