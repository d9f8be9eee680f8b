"""How the images of a training form batches, beside their augmentation.

Before: flags. After: `batches.py` and `order.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

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
