"""The training image drawn tile by tile, against the sample pasted on a canvas and warped."""

import dataclasses

import cv2
import numpy as np
import pytest

from benchmarks.paste_and_warp import plain_augment
from duet.utils.data.augment.geometry import Warp
from duet.utils.data.augment.sample import Scene, augment, draw_augmentation, draw_scene
from duet.utils.data.augment.tiles import NUM_TILES, mosaic_canvas, single_canvas
from duet.utils.data.image.decoding import (
    LabelledImage,
    SourceImage,
    average_squares,
    choose_reduction,
)
from duet.utils.data.image.letterbox import resize_linear
from duet.utils.data.loading.items import BOXES
from duet.utils.data.randomness import sample_generator
from duet.utils.strengths import AugmentConfig

SIZES = [(240, 320), (320, 240), (200, 320), (320, 320), (317, 211)]
PLAIN = AugmentConfig(translate=0.1, scale=0.5, fliplr=0.5, flipud=0.5, mosaic=1.0)
KINDS = {
    "public": PLAIN,
    "rotated": dataclasses.replace(PLAIN, degrees=30, shear=10),
    "perspective": dataclasses.replace(PLAIN, degrees=10, perspective=0.0005),
    "strong perspective": dataclasses.replace(PLAIN, perspective=0.001),
    "single": dataclasses.replace(PLAIN, mosaic=0),
    "mixed": dataclasses.replace(PLAIN, mixup=1),
    "coloured": dataclasses.replace(PLAIN, hsv_h=0.015, hsv_s=0.7, hsv_v=0.4),
}
NUM_DRAWS = 10


def waves(size: tuple[int, int], number: int, period: float) -> np.ndarray:
    """Return an image with values that tell the position: a sine along each axis and across."""
    rows, columns = np.indices(size) * (2 * np.pi / period)
    shades = [np.sin(columns + number), np.sin(rows), np.sin(rows + columns)]
    return np.rint(128 + 90 * np.stack(shades, axis=2)).astype(np.uint8)


def items(period: float, factor: int = 1) -> list[LabelledImage]:
    random = np.random.Generator(np.random.Philox(0))
    found = []
    for number, size in enumerate(SIZES):
        height, width = (side * factor for side in size)
        low = random.random((6, 2)) * 0.8
        boxes = np.concatenate((low, low + random.random((6, 2)) * (1 - low)), axis=1)
        boxes = boxes * [width, height, width, height]
        source = waves((height, width), number, period * factor)
        found.append(LabelledImage(source, np.arange(6), boxes))
    return found


class Reader:
    """Source images in memory; names those that were decoded."""

    def __init__(self, images: list[LabelledImage], image_size: int):
        self.images, self.image_size, self.decoded = images, image_size, set()

    def source(self, index: int) -> SourceImage:
        item = self.images[index]
        size = BOXES.kept_size(item.size, self.image_size)
        reduction = choose_reduction(item.size, max(size))

        def decode() -> np.ndarray:
            self.decoded.add(index)
            return resize_linear(average_squares(item.image, reduction), size)

        return SourceImage(item.size, item.objects, size, decode, reduction)


def draw_both(kind: str, images: list[LabelledImage], image_size: int, number: int):
    """Return a sample drawn tile by tile, the plain one, and where the plain one has no edge."""
    generator = sample_generator(0, 1, number)
    draw = draw_augmentation(KINDS[kind], generator, number % len(images), len(images))
    reader = Reader(images, image_size)
    fast = augment(draw, [reader.source(index) for index in draw.samples], image_size)
    plain = plain_augment(draw, [images[index] for index in draw.samples], image_size)
    return fast, plain, ~near_edges(draw, [images[index] for index in draw.samples], image_size)


def near_edges(draw, tiles, image_size) -> np.ndarray:
    """Return the pixels within three of an edge between tiles or of the grey around them."""
    flat = [
        tile._replace(image=np.full_like(tile.image, (20 + 60 * place) % 251))
        for place, tile in enumerate(tiles)
    ]
    plain = plain_augment(dataclasses.replace(draw, hsv_gains=(1, 1, 1)), flat, image_size)
    return differs_nearby(plain.image)


def differs_nearby(image: np.ndarray) -> np.ndarray:
    """Return (H, W) bool: whether a pixel within three has another value."""
    shade, kernel = image[..., 0], np.ones((7, 7), np.uint8)
    return cv2.dilate(shade, kernel) != cv2.erode(shade, kernel)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("image_size", "factor"), [(320, 1), (320, 3), (256, 1)], ids=["same", "third", "smaller"]
)
def test_tiled_sample_matches_the_plain_pipeline(kind, image_size, factor):
    images = items(period=32, factor=factor)
    for number in range(NUM_DRAWS):
        fast, plain, inside = draw_both(kind, images, image_size, number)
        np.testing.assert_allclose(fast.boxes_xyxy, plain.boxes_xyxy, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(fast.class_index, plain.class_index)
        difference = np.abs(fast.image.astype(int) - plain.image)
        # Most of the image is compared; two scenes have twice as many edges.
        assert inside.mean() > (0.7 if kind == "mixed" else 0.85)
        # Interpolated once instead of twice, in steps of a 32nd of a pixel. Measured: at most
        # 1.1 of a sine that changes by 11 a pixel and more: a shift by a tenth of a pixel.
        assert difference[inside].mean() < 1.2
        # Beside an edge a pixel belongs to one tile, where the canvas gives a mixture.
        assert difference.mean() < 6


def test_tiles_have_no_gap_or_overlap():
    white = [item._replace(image=np.full_like(item.image, 255)) for item in items(32)]
    squares = [item for item in white if item.size == (320, 320)] * 4
    for kind in ("public", "rotated"):
        for number in range(NUM_DRAWS):
            fast, plain, inside = draw_both(kind, squares, 320, number)
            # The plain canvas is white without a line where tiles meet, and so is this one.
            np.testing.assert_array_equal(fast.image[inside], plain.image[inside])
            core = cv2.erode((plain.image == 255).astype(np.uint8), np.ones((3, 3), np.uint8))
            assert (fast.image[core > 0] == 255).all()


@pytest.mark.parametrize("kind", ["public", "rotated", "perspective", "single"])
def test_tiny_and_thin_images_are_drawn(kind, monkeypatch):
    monkeypatch.setitem(KINDS, kind, dataclasses.replace(KINDS[kind], scale=1.0, translate=1.0))
    sizes, none = [(10, 400), (400, 10), (11, 13), (64, 64), (37, 10)], np.zeros((0, 4))
    images = [
        LabelledImage(np.full((*size, 3), 40 * number, np.uint8), np.zeros(0, np.int64), none)
        for number, size in enumerate(sizes)
    ]
    compared, unequal = [], []
    for number in range(200):
        fast, plain, inside = draw_both(kind, images, 64, number)
        inside &= ~differs_nearby(plain.image)
        compared.append(inside.mean())
        unequal.append((fast.image[inside] != plain.image[inside]).any(axis=1).mean())
    assert np.mean(compared) > 0.5
    # Turned, an image reaches half a pixel of its own too far, which is more than three where it is
    # enlarged 10 times. Measured: at most 1.1 % of what is compared, on average 0.03 %.
    assert max(unequal) <= (0.02 if kind in ("rotated", "perspective") else 0)
    assert np.mean(unequal) < 0.001


def test_rotated_image_extends_half_a_pixel_past_its_edges():
    white, nothing = np.full((8, 8, 3), 255, np.uint8), np.zeros((0, 4))
    source = Reader([LabelledImage(white, np.zeros(0, np.int64), nothing)], 64).source(0)
    warp = Warp(angle=30)
    image = draw_scene(Scene((0,), (1.0, 1.0), warp), [source], 64, (128, 128)).image
    rows, columns = np.nonzero(image[..., 0] == 255)
    to_canvas = np.linalg.inv(warp.matrix((64, 64), (128, 128)))
    shown = np.stack((columns, rows, np.ones_like(rows)), axis=1) @ to_canvas.T
    # On its canvas the image goes from -0.5 to 63.5, and half of its pixels is 4; a 32nd of a
    # pixel of the image, the step of OpenCV, is 0.25.
    assert -4.75 <= shown[:, :2].min() <= -0.5 and 63 <= shown[:, :2].max() <= 67.75


def test_hidden_tile_is_not_decoded():
    images, hidden = items(32), 0
    for number in range(60):
        draw = draw_augmentation(PLAIN, sample_generator(0, 1, number), number % 5, 5)
        reader = Reader(images, 320)
        augment(draw, [reader.source(index) for index in draw.samples], 320)
        hidden += len(set(draw.samples) - reader.decoded)
    assert hidden > 0


def test_tile_sides_and_boxes_are_rounded_up():
    """349 x 640 at 320 is 174.5 pixels high; the public mosaic's tiles are loaded with 175."""
    sizes = [(349, 640)] * NUM_TILES
    canvas = mosaic_canvas(sizes, (300, 310), image_size=320)
    assert [tile.resized_size for tile in canvas.tiles] == [(175, 320)] * NUM_TILES
    assert [tile.padding[::-1] for tile in canvas.tiles] == [
        (-20, 135), (300, 135), (-20, 310), (300, 310)
    ]  # fmt: skip
    corners = canvas.tiles[1].to_input(np.array([[0.0, 0.0, 640.0, 349.0]]))
    np.testing.assert_allclose(corners, [[300, 135, 620, 310]], rtol=1e-12)
    (single,) = single_canvas((349, 640), 320).tiles
    assert (single.resized_size, single.padding) == ((175, 320), (72, 0))
