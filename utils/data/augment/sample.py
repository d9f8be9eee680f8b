"""Random changes to a training sample: every draw first, then a pure function of the draws.

Before: `tiles.py`, which it calls. After: `loading/batches.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from utils.data.augment.copy_paste import CopyPaste, draw_with_copies
from utils.data.augment.geometry import Warp
from utils.data.augment.objects import objects_on_canvas, warp_objects
from utils.data.augment.strengths import AugmentConfig
from utils.data.augment.tiles import NUM_TILES, Canvas, draw_tiles, mosaic_canvas, single_canvas
from utils.data.image.decoding import LabelledImage, SourceImage

_FLOAT32_MARGIN = 1e-4  # three times the rounding of float32 at 512, the largest product


@dataclass(frozen=True)
class Augmentation:
    """Everything that is random about one training sample."""

    tiles: tuple[int, ...]  # samples in the order of `mosaic_canvas`, or one for no mosaic
    mosaic_centre_xy: tuple[float, float]  # in units of the image size
    warp: Warp
    hsv_gains: tuple[float, float, float]
    flip_up_down: bool
    flip_left_right: bool
    copy_paste: CopyPaste = CopyPaste()  # on a mosaic


def draw_augmentation(
    config: AugmentConfig, generator: np.random.Generator, index: int, num_samples: int
) -> Augmentation:
    """Make the draws of sample `index`: the same ones in the same order for any `config`."""

    def between(low: float, high: float) -> float:
        return low + (high - low) * generator.random()

    def around(middle: float, spread: float) -> float:
        return between(middle - spread, middle + spread)

    partners = [int(generator.random() * num_samples) for _ in range(NUM_TILES - 1)]
    shuffled = np.argsort(generator.random(NUM_TILES), kind="stable")
    tiles = tuple((index, *partners)[position] for position in shuffled)
    return Augmentation(
        tiles=tiles if generator.random() < config.mosaic else (index,),
        mosaic_centre_xy=(between(0.5, 1.5), between(0.5, 1.5)),
        warp=_draw_warp(config, around),
        hsv_gains=(around(1, config.hsv_h), around(1, config.hsv_s), around(1, config.hsv_v)),
        flip_up_down=generator.random() < config.flipud,
        flip_left_right=generator.random() < config.fliplr,
        copy_paste=_draw_copy_paste(config.copy_paste, generator.random()),
    )


def _draw_copy_paste(share: float, fraction: float) -> CopyPaste:
    return CopyPaste(share, int(fraction * 2**53)) if share else CopyPaste()


def _draw_warp(config: AugmentConfig, around: Callable[[float, float], float]) -> Warp:
    return Warp(
        angle=around(0, config.degrees),
        zoom=around(1, config.scale),
        shear_xy=(around(0, config.shear), around(0, config.shear)),
        centre_xy=(around(0.5, config.translate), around(0.5, config.translate)),
        perspective_xy=(around(0, config.perspective), around(0, config.perspective)),
    )


def augment(draw: Augmentation, sources: Sequence[SourceImage], image_size: int) -> LabelledImage:
    """Return the training image of a draw, a square of side `image_size`.

    Args:
        draw: from `draw_augmentation`.
        sources: those of `draw.tiles`; hidden ones are not decoded.
        image_size: pixels.
    """
    canvas = _lay_out(draw, [source.size for source in sources], image_size)
    output_size = image_size, image_size
    matrix = draw.warp.matrix((canvas.side, canvas.side), output_size)
    objects = objects_on_canvas(canvas, sources)
    if draw.copy_paste.share and len(canvas.tiles) > 1:
        image, objects = draw_with_copies(
            draw.copy_paste, canvas, sources, objects, matrix, output_size
        )
    else:
        image = draw_tiles(canvas, sources, matrix, output_size)
    item = LabelledImage(image, *warp_objects(objects, draw.warp, matrix, output_size))
    item = item._replace(image=change_hsv(item.image, draw.hsv_gains))
    if draw.flip_up_down:
        item = flip_up_down(item)
    if draw.flip_left_right:
        item = flip_left_right(item)
    return item


def _lay_out(draw: Augmentation, sizes: Sequence[tuple[int, int]], image_size: int) -> Canvas:
    if len(sizes) == NUM_TILES:
        centre_x, centre_y = (int(fraction * image_size) for fraction in draw.mosaic_centre_xy)
        return mosaic_canvas(sizes, (centre_x, centre_y), image_size)
    return single_canvas(sizes[0], image_size)


def change_hsv(image: np.ndarray, gains: tuple[float, float, float]) -> np.ndarray:
    """Multiply hue (modulo 180), saturation and value of a BGR uint8 image.

    Products are truncated, as in the reference arrays.
    """
    if gains == (1, 1, 1):  # the conversion to HSV and back is not exact
        return image
    hue, saturation, value = cv2.split(cv2.cvtColor(image, cv2.COLOR_BGR2HSV))
    channels = (
        multiply_hue(hue, gains[0]),
        multiply_channel(saturation, gains[1]),
        multiply_channel(value, gains[2]),
    )
    return cv2.cvtColor(cv2.merge(channels), cv2.COLOR_HSV2BGR)


def multiply_hue(hue: np.ndarray, gain: float) -> np.ndarray:
    """Multiply a hue (H, W) uint8 below 180 by a gain: truncated, modulo 180."""
    if gain <= 1:  # no hue passes 180
        return multiply_channel(hue, gain)
    return cv2.LUT(hue, (np.arange(256) * gain % 180).astype(np.uint8))


def multiply_channel(channel: np.ndarray, gain: float) -> np.ndarray:
    """Multiply a channel (H, W) uint8 by a gain: truncated, at most 255."""
    products = np.arange(256) * gain
    # One multiplication takes a fifth of the time of a table, but is done in float32 and rounds.
    # It truncates like the table where no product is just below a whole number.
    if (products % 1 < 1 - 2 * _FLOAT32_MARGIN).all():
        return cv2.convertScaleAbs(channel, alpha=gain, beta=_FLOAT32_MARGIN - 0.5)
    return cv2.LUT(channel, products.clip(0, 255).astype(np.uint8))


def flip_left_right(item: LabelledImage) -> LabelledImage:
    """Mirror an image, its boxes and its polygons at the vertical axis."""
    left, top, right, bottom = item.boxes_xyxy.T
    width = item.size[1]
    boxes = np.stack((width - right, top, width - left, bottom), axis=1)
    polygons = None if item.polygons is None else item.polygons.mirrored(0, width)
    return LabelledImage(cv2.flip(item.image, 1), item.class_index, boxes, polygons)


def flip_up_down(item: LabelledImage) -> LabelledImage:
    """Mirror an image, its boxes and its polygons at the horizontal axis."""
    left, top, right, bottom = item.boxes_xyxy.T
    height = item.size[0]
    boxes = np.stack((left, height - bottom, right, height - top), axis=1)
    polygons = None if item.polygons is None else item.polygons.mirrored(1, height)
    return LabelledImage(cv2.flip(item.image, 0), item.class_index, boxes, polygons)
