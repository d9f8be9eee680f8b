"""Polygons and their boxes stay on their objects, through all of the augmentation."""

import dataclasses

import cv2
import numpy as np
import pytest

from benchmarks.paste_and_warp import plain_augment
from duet.utils.data.augment.sample import Augmentation, augment, draw_augmentation
from duet.utils.data.image.decoding import (
    LabelledImage,
    SourceImage,
    average_squares,
    choose_reduction,
)
from duet.utils.data.randomness import sample_generator
from duet.utils.strengths import AugmentConfig
from tests.unit.data.compared import make_polygons

SIZES = [(240, 320), (320, 240), (200, 320), (320, 320), (317, 211)]
IMAGE_SIZE, NUM_DRAWS = 256, 12
PLAIN = AugmentConfig(translate=0.1, scale=0.3, fliplr=0.5, flipud=0.5, mosaic=1.0)
KINDS = {
    "public": PLAIN,
    "rotated": dataclasses.replace(PLAIN, degrees=45, shear=15),
    "perspective": dataclasses.replace(PLAIN, degrees=20, perspective=0.0005),
    "single": dataclasses.replace(PLAIN, degrees=45, mosaic=0),
    "pasted": dataclasses.replace(PLAIN, degrees=45, copy_paste=0.8),
}


def objects(size: tuple[int, int], number: int) -> LabelledImage:
    """Return a dark image with bright objects: a bent one, and one that reaches to an edge."""
    height, width = size
    bent = np.array([[0, 0], [1, 0], [1, 1], [0.8, 1], [0.8, 0.2], [0, 0.2]]) * 80 + 20 + 5 * number
    edge = np.array([[0.55, 0.5], [1, 0.6], [1, 0.9], [0.7, 0.85]]) * [width, height]
    polygons = make_polygons([bent, edge])
    scaled = cv2.resize(np.zeros((1, 1), np.uint8), (8 * width, 8 * height))
    for outline in (bent, edge):  # averages of 64 small pixels: the edges are where they should be
        cv2.fillPoly(scaled, [np.rint(outline * 8 - 0.5).astype(np.int32)], (255,))
    shade = cv2.resize(scaled, (width, height), interpolation=cv2.INTER_AREA)
    boxes = [[*outline.min(axis=0), *outline.max(axis=0)] for outline in (bent, edge)]
    return LabelledImage(cv2.merge([shade] * 3), np.array([0, 1]), np.array(boxes), polygons)


IMAGES = [objects(size, number) for number, size in enumerate(SIZES)]


def source_of(item: LabelledImage) -> SourceImage:
    reduction = choose_reduction(item.size, IMAGE_SIZE)
    reduced = item.image if reduction == 1 else average_squares(item.image, reduction)
    return SourceImage(item.size, item.objects, reduced.shape[:2], lambda: reduced, reduction)


def drawn(kind: str, number: int) -> Augmentation:
    generator = sample_generator(0, 1, number)
    return draw_augmentation(KINDS[kind], generator, number % len(IMAGES), len(IMAGES))


def fill(item: LabelledImage) -> np.ndarray:
    """Return (H, W) bool: the pixels of which half or more is in any polygon."""
    finely = np.zeros((item.size[0] * 8, item.size[1] * 8), np.uint8)
    for number in range(len(item.polygons)):
        corners = np.rint(item.polygons.outline(number) * 8 - 0.5).astype(np.int32)
        cv2.fillPoly(finely, [corners], (255,))
    return cv2.resize(finely, item.size[::-1], interpolation=cv2.INTER_AREA) >= 128


@pytest.mark.parametrize("kind", KINDS)
def test_augmented_polygons_match_plain_pipeline_and_pixels(kind):
    overlaps, num_objects = [], 0
    for number in range(NUM_DRAWS):
        draw = drawn(kind, number)
        found = augment(draw, [source_of(IMAGES[tile]) for tile in draw.tiles], IMAGE_SIZE)
        plain = plain_augment(draw, [IMAGES[tile] for tile in draw.tiles], IMAGE_SIZE)
        np.testing.assert_array_equal(found.class_index, plain.class_index)
        np.testing.assert_allclose(found.boxes_xyxy, plain.boxes_xyxy, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.polygons.points_xy, plain.polygons.points_xy, atol=1e-9)
        assert len(found.polygons) == len(found.class_index) == len(found.boxes_xyxy)
        num_objects += len(found.polygons)
        bright, filled = found.image[..., 0] >= 128, fill(found)
        overlaps.append((bright & filled).sum() / max((bright | filled).sum(), 1))
        # Measured: up to 0.026, as the warp is half a pixel off where it zooms. A shift by a pixel
        # of the 16 of an arm would leave 0.06. (Of bright pixels more may be uncovered: an object
        # of which little is left is dropped.)
        assert (filled & ~bright).sum() <= 0.04 * filled.sum()
    assert num_objects > NUM_DRAWS
    assert np.median(overlaps) > 0.96  # measured: 0.977 and more
