"""Random changes to a training sample: every draw first, then a pure function of the draws.

Before: `images.read_image`. After: `batches`, which collates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from utils.data.geometry import Warp, warp_boxes, warp_image, worth_keeping
from utils.data.images import LabelledImage, letterbox_labelled
from utils.data.letterbox import fit_letterbox
from utils.data.mosaic import NUM_TILES, mosaic
from utils.errors import UserError

_UPPER_LIMITS = {"degrees": 180.0, "shear": 80.0, "perspective": 0.001}  # all others: 1


@dataclass(frozen=True)
class AugmentConfig:
    """Strengths by their public names; the defaults change nothing."""

    hsv_h: float = 0.0  # hue factor is 1 +- this; likewise saturation and value
    hsv_s: float = 0.0
    hsv_v: float = 0.0
    degrees: float = 0.0  # rotation, +- degrees
    translate: float = 0.0  # +- fraction of the image
    scale: float = 0.0  # zoom, 1 +- this
    shear: float = 0.0  # +- degrees
    perspective: float = 0.0  # +- change of the perspective divisor per pixel
    flipud: float = 0.0  # probability
    fliplr: float = 0.0  # probability
    mosaic: float = 0.0  # probability

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            limit = _UPPER_LIMITS.get(name, 1.0)
            if not 0 <= value <= limit:
                raise UserError(f"{name}: {value}; a number from 0 to {limit:g} is needed")


@dataclass(frozen=True)
class Augmentation:
    """Everything that is random about one training sample."""

    tiles: tuple[int, ...]  # samples in the order of `mosaic.mosaic`, or one for no mosaic
    mosaic_centre_xy: tuple[float, float]  # in units of the image size
    warp: Warp
    hsv_gains: tuple[float, float, float]
    flip_up_down: bool
    flip_left_right: bool


def draw_augmentation(
    config: AugmentConfig, generator: np.random.Generator, index: int, num_samples: int
) -> Augmentation:
    """Draw for sample `index`; what is drawn, and in which order, never depends on `config`."""

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
    )


def _draw_warp(config: AugmentConfig, around: Callable[[float, float], float]) -> Warp:
    return Warp(
        angle=around(0, config.degrees),
        zoom=around(1, config.scale),
        shear_xy=(around(0, config.shear), around(0, config.shear)),
        centre_xy=(around(0.5, config.translate), around(0.5, config.translate)),
        perspective_xy=(around(0, config.perspective), around(0, config.perspective)),
    )


def augment(draw: Augmentation, images: Sequence[LabelledImage], image_size: int) -> LabelledImage:
    """The training image of a draw, a square of side `image_size`.

    Args:
        draw: from `draw_augmentation`.
        images: those of `draw.tiles`, as read from their files.
        image_size: pixels.
    """
    item = warp_labelled(_compose(draw, images, image_size), draw.warp, (image_size, image_size))
    item = item._replace(image=change_hsv(item.image, draw.hsv_gains))
    if draw.flip_up_down:
        item = flip_up_down(item)
    if draw.flip_left_right:
        item = flip_left_right(item)
    return item


def _compose(draw: Augmentation, images: Sequence[LabelledImage], image_size: int) -> LabelledImage:
    if len(images) == NUM_TILES:
        centre_x, centre_y = (int(fraction * image_size) for fraction in draw.mosaic_centre_xy)
        return mosaic(images, (centre_x, centre_y), image_size)
    return letterbox_labelled(images[0], fit_letterbox(images[0].size, (image_size, image_size)))


def warp_labelled(item: LabelledImage, warp: Warp, output_size: tuple[int, int]) -> LabelledImage:
    """Warp an image and its boxes to (height, width); boxes are clipped, poor remains dropped."""
    matrix = warp.matrix(item.size, output_size)
    height, width = output_size
    warped = warp_boxes(item.boxes_xyxy, matrix).clip(0, [width, height, width, height])
    keep = worth_keeping(item.boxes_xyxy * warp.zoom, warped)
    return LabelledImage(
        warp_image(item.image, matrix, output_size), item.class_index[keep], warped[keep]
    )


def change_hsv(image: np.ndarray, gains: tuple[float, float, float]) -> np.ndarray:
    """Multiply hue (modulo 180), saturation and value of a BGR uint8 image, by tables."""
    if gains == (1, 1, 1):  # the conversion to HSV and back is not exact
        return image
    hue, saturation, value = (np.arange(256) * gain for gain in gains)
    table = np.stack((hue % 180, saturation.clip(0, 255), value.clip(0, 255)), axis=1)
    hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    # Truncated, as the reference arrays have it.
    hsv = cv2.LUT(hsv, table.astype(np.uint8)[None])
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)


def flip_left_right(item: LabelledImage) -> LabelledImage:
    """Mirror an image and its boxes at the vertical axis."""
    left, top, right, bottom = item.boxes_xyxy.T
    width = item.size[1]
    boxes = np.stack((width - right, top, width - left, bottom), axis=1)
    return LabelledImage(cv2.flip(item.image, 1), item.class_index, boxes)


def flip_up_down(item: LabelledImage) -> LabelledImage:
    """Mirror an image and its boxes at the horizontal axis."""
    left, top, right, bottom = item.boxes_xyxy.T
    height = item.size[0]
    boxes = np.stack((left, height - bottom, right, height - top), axis=1)
    return LabelledImage(cv2.flip(item.image, 0), item.class_index, boxes)
