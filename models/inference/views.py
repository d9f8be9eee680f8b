"""An image -> the views of it that the network takes, and back: the whole, and tiles of it.

Before: an image of any size. After: `image_detector.py` predicts in the views.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from utils.data.image.tiling import Tiling
from utils.data.image.view import View, place, whole_view


def views_of(
    image: np.ndarray,
    long_side: int,
    stride: int,
    tiling: Tiling | None = None,
    fixed_size: tuple[int, int] | None = None,
    view: Callable[..., View] = whole_view,
) -> list[View]:
    """Return what the network takes of an image (H, W, 3) uint8 RGB.

    It is the whole image; before it, of one that is larger than a tile, the tiles: their boxes are
    the finer ones, and of equal scores the first stays. The whole shows what is larger than a tile.
    The long side of either becomes long_side; where the network takes one size only, both are as
    large as fits.

    view: makes that of the whole image: `Task.view`.
    """
    whole = view(image, long_side, stride, fixed_size)
    size = image.shape[0], image.shape[1]
    if tiling is None or max(size) <= tiling.side:
        return [whole]
    height, width = tiling.tile_size(size)
    placement = place((height, width), long_side, stride, fixed_size)
    tiles = [
        View(image[top : top + height, left : left + width], placement, (top, left))
        for top, left in tiling.corners(size)
    ]
    return [*tiles, whole]
