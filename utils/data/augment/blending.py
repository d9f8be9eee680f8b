"""Two training images blended into one, and holes of noise cut into one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from utils.boxes import covered_parts
from utils.data.image.labelled import LabelledImage
from utils.polygons import join_polygons

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
    return LabelledImage(
        image.astype(np.uint8),
        np.concatenate((first.class_index, second.class_index)),
        np.concatenate((first.boxes_xyxy, second.boxes_xyxy)),
        join_polygons([(part.polygons, len(part.class_index)) for part in (first, second)]),
    )


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
    polygons = None if item.polygons is None else item.polygons.select(keep)
    return LabelledImage(image, item.class_index[keep], item.boxes_xyxy[keep], polygons)


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
