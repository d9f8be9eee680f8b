"""Parts of an image as network inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from duet.utils.data.image.letterbox import (
    Letterbox,
    centre_region,
    crop,
    fit_letterbox,
    letterbox,
    resize_linear,
)


class View(NamedTuple):
    """A part of an image, or all of it."""

    part: np.ndarray  # (h, w, 3) uint8 RGB, as in the image, or already as the network takes it
    placement: Letterbox  # of the part in the network's input
    offset: tuple[int, int] = (0, 0)  # (top, left) of the part in the image

    @property
    def pixels(self) -> np.ndarray:
        """(h, w, 3) uint8 RGB of `placement.input_size`.

        Tiles are resized on request: the many tiles of an image need no memory.
        """
        if self.part.shape[:2] == self.placement.input_size:
            return self.part
        return letterbox(self.part, self.placement, resize_linear)

    @property
    def region_xyxy(self) -> tuple[int, int, int, int]:
        """The part's left, top, right and bottom in the image, pixels."""
        (top, left), (height, width) = self.offset, self.placement.original_size
        return left, top, left + width, top + height


def whole_view(
    image: np.ndarray,
    long_side: int,
    stride: int,
    fixed_size: tuple[int, int] | None = None,
) -> View:
    """Return an image (H, W, 3) with its long side resized to long_side, and the least padding."""
    placement = place(image.shape[:2], long_side, stride, fixed_size)
    return View(letterbox(image, placement, resize_linear), placement)


def centre_view(
    image: np.ndarray,
    image_size: int,
    stride: int,
    fixed_size: tuple[int, int] | None = None,
) -> View:
    """Return the middle of an image: a square of image_size, or fixed_size."""
    output_size = fixed_size or (image_size, image_size)
    region = centre_region(image.shape[:2], output_size)
    pixels = crop(image, region, output_size)
    return View(pixels, region.placement(output_size), (region.top, region.left))


# As `whole_view` and `centre_view`: an image (H, W, 3) uint8 RGB of no dataset, the size of --img,
# the stride whose multiples the network takes, and the only size that it takes, if it takes one.
Viewing = Callable[[np.ndarray, int, int, tuple[int, int] | None], View]


def place(
    size: tuple[int, ...],
    long_side: int,
    stride: int,
    fixed_size: tuple[int, int] | None = None,
) -> Letterbox:
    """Return where a part (height, width) of an image lies in the input.

    Its long side becomes long_side; each side is padded to the next multiple of stride. In a fixed
    size it is as large as fits.
    """
    height, width = size
    if fixed_size is not None:
        return fit_letterbox((height, width), fixed_size)
    fitted = fit_letterbox((height, width), (long_side, long_side)).resized_size
    bottom, right = (-(-side // stride) * stride for side in fitted)
    max_scale = long_side / max(height, width)
    return fit_letterbox((height, width), (bottom, right), max_scale)
