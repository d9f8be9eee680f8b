"""Random changes to images of a class: the crops that are drawn, and what happens to a label."""

import dataclasses

import numpy as np
import pytest

from duet.utils.data.augment.class_sample import (
    augment_class,
    draw_class_augmentation,
    random_region,
    shortest_side,
)
from duet.utils.data.image.decoding import Objects, SourceImage
from duet.utils.data.image.letterbox import reduced_size
from duet.utils.data.randomness import sample_generator
from duet.utils.strengths import AugmentConfig
from tests.unit.data.compared import OF_CLASSES

NOTHING = AugmentConfig()


def drawn(config: AugmentConfig, number: int):
    return [
        draw_class_augmentation(config, sample_generator(1, 2, index), index)
        for index in range(number)
    ]


def source(image: np.ndarray, reduction: int = 1, size=None) -> SourceImage:
    size = size or image.shape[:2]
    boxes = np.array([[0, 0, size[1], size[0]]], np.float64)
    objects = Objects(np.array([3]), boxes, None)
    return SourceImage(size, objects, image.shape[:2], lambda: image, reduction)


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def test_zero_strengths_take_the_unchanged_centre():
    image = noise(40, 60)
    (draw,) = drawn(NOTHING, 1)
    found = augment_class(draw, source(image), (40, 40))
    np.testing.assert_array_equal(found.image, image[:, 10:50])
    assert found.class_index.tolist() == [3]
    assert found.boxes_xyxy.tolist() == [[0, 0, 40, 40]]


def test_crops_have_the_promised_areas_and_aspects():
    size = 300, 400
    regions = [random_region(draw, size, (224, 224)) for draw in drawn(OF_CLASSES, 3000)]
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
def test_image_of_any_shape_gives_a_crop(size):
    for draw in drawn(OF_CLASSES, 50):
        region = random_region(draw, size, (32, 32))
        assert min(region.height, region.width) >= 1
        assert region.top + region.height <= size[0] and region.left + region.width <= size[1]


def test_crops_respect_the_reduced_decoding_bound():
    size = 600, 800
    sides = [min(x.height, x.width) for x in (random_region(d, size, size) for d in
             drawn(dataclasses.replace(NOTHING, scale=1.0), 3000))]  # fmt: skip
    assert shortest_side(size) - 1 <= min(sides) < shortest_side(size) + 10


def test_crop_of_half_size_image_shows_the_same_region():
    rows, columns = np.mgrid[:400, :600] / [[[400]], [[600]]] * 255
    image = np.stack([rows, columns, rows], axis=2).astype(np.uint8)
    half = image.reshape(200, 2, 300, 2, 3).mean(axis=(1, 3)).astype(np.uint8)
    assert half.shape[:2] == reduced_size((400, 600), 2)
    for draw in drawn(AugmentConfig(scale=0.92), 20):
        full = augment_class(draw, source(image), (64, 64)).image.astype(int)
        small = augment_class(draw, source(half, 2, (400, 600)), (64, 64)).image.astype(int)
        # A region is rounded to pixels, twice as large in the half: by two of 400 rows.
        assert np.abs(full - small).max() <= 4
