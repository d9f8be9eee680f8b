"""Random batch sizes in pixels for --multi-scale.

Source: the public YOLOv5 recipe.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.utils.data.randomness import Stream, generator_of
from duet.utils.errors import UserError

SMALLEST_GRID = 32  # as in the public recipe, even for models with a smaller stride


@dataclass(frozen=True)
class MultiScale:
    """Draws the long side of each batch, from 0.5 to 1.5 times --img, in steps of a grid.

    It is a function of the seed and batch number, and thus the same on all ranks.
    """

    image_size: int  # pixels
    grid: int  # pixels
    seed: int

    @classmethod
    def of_model(cls, image_size: int, stride: int, seed: int) -> MultiScale:
        """Return the sizes for a model's stride.

        Raises:
            UserError: the smallest size would be one cell of the coarsest map, too little for
                BatchNorm statistics.
        """
        scale = cls(image_size, max(stride, SMALLEST_GRID), seed)
        if scale.sizes()[0] < 2 * stride:
            raise UserError(
                f"--multi-scale with --img {image_size} would draw a size of {scale.sizes()[0]}, "
                f"less than two cells of the model's stride {stride}; use --img {4 * scale.grid} "
                "or more"
            )
        return scale

    def sizes(self) -> list[int]:
        first, end = self._bounds()
        return list(range(self._on_grid(first), self._on_grid(end - 1) + 1, self.grid))

    def draw(self, batch_number: int) -> int:
        """Return the size for a batch, numbered from 0 over all epochs."""
        first, end = self._bounds()
        draw = generator_of(Stream.BATCH, self.seed, index=batch_number).random()
        return self._on_grid(first + int(draw * (end - first)))

    def shape(self, size_hw: tuple[int, int], long_side: int) -> tuple[int, int]:
        """Return (height, width) on the grid for a batch with its long side at `long_side`.

        Sides are rounded up in floating point as in the public recipe: 992 of 960 becomes 1024.
        """
        scale = long_side / max(size_hw)
        height, width = (math.ceil(side * scale / self.grid) * self.grid for side in size_hw)
        return height, width

    def largest(self, shape: Sequence[int]) -> tuple[int, int, int, int]:
        images, channels, height, width = shape
        return images, channels, *max(self.shape((height, width), size) for size in self.sizes())

    def resize(self, images: Tensor, batch_number: int) -> Tensor:
        """Resize a float batch (B, C, H, W) to the size for its number; B may be 0."""
        size_hw = images.shape[2], images.shape[3]
        wanted = self.shape(size_hw, self.draw(batch_number))
        return images if wanted == size_hw else ops.resize_bilinear(images, *wanted)

    def _bounds(self) -> tuple[int, int]:
        """Return the range of draws, end exclusive, before rounding to the grid."""
        return self.image_size // 2, self.image_size * 3 // 2 + self.grid

    def _on_grid(self, size: int) -> int:
        return size // self.grid * self.grid
