"""How a large image is cut into tiles that overlap."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIN_SIDE = 64
# What lies across a border is recognised by the overlap; and each tile brings something new, so
# that the tiles of an image need memory in proportion to it.
MIN_OVERLAP, MAX_OVERLAP = 0.1, 0.75
OVERLAP = 0.2


@dataclass(frozen=True)
class Tiling:
    """How large images are cut."""

    side: int  # of a tile, pixels of the image
    overlap: float = OVERLAP  # of neighbours, at least, as a fraction of the side
    batch_size: int = 16  # tiles that go through the network at once, at most

    def tile_size(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Return (height, width) of every tile of an image: less than the side where it is."""
        height, width = image_size
        return min(self.side, height), min(self.side, width)

    def corners(self, image_size: tuple[int, int]) -> list[tuple[int, int]]:
        """Return (top, left) of every tile of an image, row by row.

        As few tiles as keep the overlap, evenly spread from border to border.
        """
        tops, lefts = (self._starts(length) for length in image_size)
        return [(top, left) for top in tops for left in lefts]

    def _starts(self, length: int) -> list[int]:
        """Return where the tiles begin along one axis."""
        free = max(length - self.side, 0)
        step = self.side - math.ceil(self.side * self.overlap)
        intervals = -(-free // step)
        return [index * free // max(intervals, 1) for index in range(intervals + 1)]
