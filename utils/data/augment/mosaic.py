"""Where the images of a training sample lie on its canvas, before any of them is decoded.

Before: `sample.py::draw_augmentation`. After: `tiles.py`, which draws them through the random warp.
Source: the mosaic of YOLOv4, Bochkovskiy et al. 2020, arXiv:2004.10934.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from utils.data.image.letterbox import fit_letterbox

NUM_TILES = 4


class Tile(NamedTuple):
    """An image's place on a canvas; the canvas is never drawn itself."""

    resized_size: tuple[int, int]  # (height, width) of the image on the canvas
    scale: tuple[float, float]  # (vertical, horizontal) from image to canvas pixels
    top: int  # canvas pixels; what lies outside the canvas is not seen
    left: int

    def to_canvas(self, boxes_xyxy: np.ndarray) -> np.ndarray:
        """Map (M, 4) boxes from image to canvas pixels, float64, not clipped."""
        scale_y, scale_x = self.scale
        left, top = self.left, self.top
        return boxes_xyxy * [scale_x, scale_y, scale_x, scale_y] + [left, top, left, top]


class Canvas(NamedTuple):
    """A square of this side with its tiles."""

    side: int
    tiles: tuple[Tile, ...]


def single_canvas(size: tuple[int, int], image_size: int) -> Canvas:
    """Place one image of (height, width) in the middle of a canvas, as large as fits."""
    placement = fit_letterbox(size, (image_size, image_size))
    return Canvas(image_size, (Tile(placement.resized_size, placement.scale, *placement.padding),))


def mosaic_canvas(
    sizes: Sequence[tuple[int, int]], centre_xy: tuple[int, int], image_size: int
) -> Canvas:
    """Place four images, each with its long side at `image_size`, around a point where they meet.

    Args:
        sizes: (height, width) of top left, top right, bottom left, bottom right.
        centre_xy: this point on the canvas, pixels.
        image_size: half the side of the canvas.
    """
    tiles = []
    for position, size in enumerate(sizes):
        placement = fit_letterbox(size, (image_size, image_size))
        height, width = placement.resized_size
        left = centre_xy[0] - (width if position in (0, 2) else 0)
        top = centre_xy[1] - (height if position in (0, 1) else 0)
        tiles.append(Tile(placement.resized_size, placement.scale, top, left))
    return Canvas(2 * image_size, tuple(tiles))
