"""Four images pasted around one point of a canvas of twice the image size.

Before: `images.read_image`. After: the random warp in `augment`, which crops the canvas.
Source: the mosaic of YOLOv4, Bochkovskiy et al. 2020, arXiv:2004.10934.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from utils.data.images import LabelledImage
from utils.data.letterbox import FILL, fit_letterbox, resize

NUM_TILES = 4


def mosaic(
    tiles: Sequence[LabelledImage], centre_xy: tuple[int, int], image_size: int
) -> LabelledImage:
    """Paste four images, each with its long side at `image_size`, so that they meet in a point.

    Args:
        tiles: top left, top right, bottom left, bottom right, in their own pixels.
        centre_xy: where the four meet on the canvas, pixels.
        image_size: half the side of the canvas.

    Returns:
        The canvas, grey where no tile lies; boxes are clipped to it, and some may be empty.
    """
    side = 2 * image_size
    canvas = np.full((side, side, 3), FILL, np.uint8)
    boxes = [
        _paste(canvas, tile, position, centre_xy, image_size) for position, tile in enumerate(tiles)
    ]
    class_index = np.concatenate([tile.class_index for tile in tiles])
    return LabelledImage(canvas, class_index, np.concatenate(boxes).clip(0, side))


def _paste(
    canvas: np.ndarray,
    tile: LabelledImage,
    position: int,
    centre_xy: tuple[int, int],
    image_size: int,
) -> np.ndarray:
    """Paste one tile, cropped to the canvas; returns its boxes in canvas pixels."""
    placement = fit_letterbox(tile.size, (image_size, image_size))
    height, width = placement.resized_size
    left = centre_xy[0] - (width if position in (0, 2) else 0)
    top = centre_xy[1] - (height if position in (0, 1) else 0)
    rows = slice(max(top, 0), min(top + height, canvas.shape[0]))
    columns = slice(max(left, 0), min(left + width, canvas.shape[1]))
    picture = resize(tile.image, placement.resized_size)
    canvas[rows, columns] = picture[
        rows.start - top : rows.stop - top, columns.start - left : columns.stop - left
    ]
    scale_y, scale_x = placement.scale
    return tile.boxes_xyxy * [scale_x, scale_y, scale_x, scale_y] + [left, top, left, top]
