"""Cut a large image into overlapping tiles."""

import math
from dataclasses import dataclass

MIN_SIDE = 64
# The overlap lets objects across a border be recognised; the maximum keeps the tiles' total memory
# proportional to the image.
MIN_OVERLAP, MAX_OVERLAP = 0.1, 0.75
OVERLAP = 0.2


@dataclass(frozen=True)
class Tiling:
    """The settings for cutting images into tiles."""

    side: int  # tile side in pixels of the image
    overlap: float = OVERLAP  # minimum overlap of neighbours, as a fraction of the side
    batch_size: int = 16  # maximum number of tiles per batch

    def tile_size(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Return (height, width) of the tiles: less than the side for a smaller image."""
        height, width = image_size
        return min(self.side, height), min(self.side, width)

    def corners(self, image_size: tuple[int, int]) -> list[tuple[int, int]]:
        """Return (top, left) of every tile of an image, row by row.

        Uses as few tiles as the overlap allows, evenly spaced.
        """
        tops, lefts = (self._starts(length) for length in image_size)
        return [(top, left) for top in tops for left in lefts]

    def _starts(self, length: int) -> list[int]:
        free = max(length - self.side, 0)
        step = self.side - math.ceil(self.side * self.overlap)
        intervals = -(-free // step)
        return [index * free // max(intervals, 1) for index in range(intervals + 1)]
