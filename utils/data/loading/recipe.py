"""How the images of a training form batches, beside their augmentation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from utils.data.image.letterbox import fit_long_side
from utils.data.loading.order import (
    ByAspectRatio,
    Order,
    Repeated,
    Shuffled,
    Weighted,
    repeat_factors,
)
from utils.data.sources.samples import SampleTable


@dataclass(frozen=True)
class BatchRecipe:
    """The choices of train.py's flags of these names; the defaults make shuffled squares."""

    rectangular: bool = False
    quad: bool = False
    image_weights: bool = False
    repeat_factor: float = 0.0
    mosaic_window: int = 0  # partners of a mosaic are among so many of the order; 0: all samples

    def order(self, seed: int, samples: SampleTable) -> Order:
        """Return the order of these samples."""
        if self.rectangular:
            return ByAspectRatio(samples)
        if self.image_weights:
            return Weighted(seed, samples)
        if self.repeat_factor:
            return Repeated(seed, repeat_factors(samples, self.repeat_factor))
        return Shuffled(seed, len(samples))


SQUARE = BatchRecipe()


def rectangle(
    sizes: Iterable[tuple[int, int]], long_side: int, stride: int, margin: float = 0.0
) -> tuple[int, int]:
    """Return the smallest (height, width) in multiples of `stride` that holds these images.

    Args:
        sizes: (height, width) of the images, each of which is resized to `long_side`.
        margin: room around them, in strides.
    """
    inside = long_side, long_side
    resized = [fit_long_side(size, long_side, inside).resized_size for size in sizes]
    height, width = np.max(resized, axis=0) / stride + margin
    return math.ceil(height) * stride, math.ceil(width) * stride
