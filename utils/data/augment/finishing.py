"""Changes to a training image as a whole: colours, flips, holes, and a blend of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from utils.boxes import covered_parts
from utils.data.augment.transforms import transform
from utils.data.image.labelled import LabelledImage, join_objects

# The public recipe's ratio is drawn from Beta(32, 32): the 32nd smallest of 63 uniform draws.
RATIO_DRAWS, RATIO_RANK = 63, 31
# The public recipe's holes: how many of which largest side, as a part of the image's.
HOLES = ((1, 1 / 2), (2, 1 / 4), (4, 1 / 8), (8, 1 / 16), (16, 1 / 32))
HIDDEN = 0.6  # an object of which one hole covers this part is gone
HOLE_SHADES = 64, 191  # darkest and lightest
DRAWS_A_HOLE = 7  # height, width, centre x and y, three channels
NUM_CUTOUT_DRAWS = DRAWS_A_HOLE * sum(number for number, _ in HOLES)


def draw_ratio(generator: np.random.Generator) -> float:
    """Draw from Beta(32, 32), from uniform draws only."""
    return float(np.sort(generator.random(RATIO_DRAWS))[RATIO_RANK])


def mix(first: LabelledImage, second: LabelledImage, ratio: float) -> LabelledImage:
    """Blend two images of one size and keep the objects of both.

    Args:
        ratio: fraction of the first, from 0 to 1. Sums are truncated, as in the reference arrays.

    Source: Zhang et al. 2018, arXiv:1710.09412.
    """
    image = first.image * ratio + second.image * (1 - ratio)
    return LabelledImage(image.astype(np.uint8), *join_objects(first.objects, second.objects))


def cut_out(item: LabelledImage, draws: Sequence[float]) -> LabelledImage:
    """Cover parts of an image with rectangles of one colour; drop objects that one covers.

    Args:
        draws: `NUM_CUTOUT_DRAWS` from 0 to below 1, `DRAWS_A_HOLE` for each of `HOLES`.

    Source: DeVries and Taylor 2017, arXiv:1708.04552.
    """
    holes, colours = _place_holes(item.size, np.reshape(draws, (-1, DRAWS_A_HOLE)))
    image = item.image.copy()
    for (left, top, right, bottom), colour in zip(holes.tolist(), colours, strict=True):
        image[top:bottom, left:right] = colour
    keep = covered_parts(item.boxes_xyxy, holes).max(axis=1, initial=0) < HIDDEN
    return LabelledImage(image, *item.objects.select(keep))


def _place_holes(size: tuple[int, int], draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return left, top, right, bottom (N, 4) of holes within an image, and their BGR (N, 3)."""
    height, width = size
    parts = np.repeat([part for _, part in HOLES], [number for number, _ in HOLES])
    low, high = HOLE_SHADES
    heights = _whole(draws[:, 0], 1, np.maximum(parts * height, 1).astype(int))
    widths = _whole(draws[:, 1], 1, np.maximum(parts * width, 1).astype(int))
    left = np.maximum(_whole(draws[:, 2], 0, width) - widths // 2, 0)
    top = np.maximum(_whole(draws[:, 3], 0, height) - heights // 2, 0)
    right, bottom = np.minimum(left + widths, width), np.minimum(top + heights, height)
    return np.stack((left, top, right, bottom), axis=1), _whole(draws[:, 4:], low, high)


def _whole(draws: np.ndarray, low: int, high: int | np.ndarray) -> np.ndarray:
    """Return whole numbers from low to high, both included, for draws from 0 to below 1."""
    return low + (draws * (high - low + 1)).astype(int)


@dataclass(frozen=True)
class Finish:
    """What happens to a training image as a whole, at the end."""

    hsv_gains: tuple[float, float, float]
    flip_up_down: bool
    flip_left_right: bool
    cutout: tuple[float, ...] = ()  # of `cut_out`; empty for none
    transforms: str = ""  # of Albumentations
    transforms_seed: int = 0
    fits_outlines: bool = False  # boxes that transforms move end where their outlines do


def finish(draw: Finish, item: LabelledImage) -> LabelledImage:
    """Change the image of a draw as a whole: pixels, flips, holes."""
    if draw.transforms:
        item = transform(item, draw.transforms, draw.transforms_seed, draw.fits_outlines)
    item = item._replace(image=change_hsv(item.image, draw.hsv_gains))
    if draw.flip_up_down:
        item = flip_up_down(item)
    if draw.flip_left_right:
        item = flip_left_right(item)
    return cut_out(item, draw.cutout) if draw.cutout else item


def change_hsv(image: np.ndarray, gains: tuple[float, float, float]) -> np.ndarray:
    """Multiply hue (modulo 180), saturation and value of a BGR uint8 image.

    Products are truncated, as in the reference arrays.
    """
    if gains == (1, 1, 1):  # the conversion to HSV and back is not exact
        return image
    products = np.arange(256)[:, None] * gains
    products[:, 0] %= 180
    table = products.clip(0, 255).astype(np.uint8)[None]
    return cv2.cvtColor(cv2.LUT(cv2.cvtColor(image, cv2.COLOR_BGR2HSV), table), cv2.COLOR_HSV2BGR)


def flip_left_right(item: LabelledImage) -> LabelledImage:
    """Mirror an image, its boxes and its polygons at the vertical axis."""
    return _flip(item, 0)


def flip_up_down(item: LabelledImage) -> LabelledImage:
    """Mirror an image, its boxes and its polygons at the horizontal axis."""
    return _flip(item, 1)


def _flip(item: LabelledImage, axis: int) -> LabelledImage:
    """Mirror x, axis 0, or y, axis 1."""
    side = item.size[1 - axis]
    boxes = item.boxes_xyxy.copy()
    boxes[:, [axis, axis + 2]] = side - item.boxes_xyxy[:, [axis + 2, axis]]
    polygons = None if item.polygons is None else item.polygons.mirrored(axis, side)
    return LabelledImage(cv2.flip(item.image, 1 - axis), item.class_index, boxes, polygons)
