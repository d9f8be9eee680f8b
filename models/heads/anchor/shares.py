"""What part of the whole batch a rank has, so that the ranks' losses add up to the batch's.

Before: `loss.py` counts its positives. After: it weighs its means by it.
A mean over a rank's rows times the rank's share of all rows, summed over the ranks, is the mean
over all rows; the mean of the ranks' means is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from backend import dist, ops
from backend.contract import Tensor
from backend.processes import processes


class BatchShares(NamedTuple):
    """Factors of a rank's means; they stay on the device."""

    images: Tensor  # 0-d: of the batch's images, those of this rank
    positives: Tensor  # (L,): of each level's positives, those of this rank; 0 of none
    total: Tensor  # 0-d: images of the batch times ranks: gradients are averaged over the ranks


def batch_shares(
    num_images: int, positives: Sequence[int], dtype: str, device: str
) -> BatchShares | None:
    """The shares of this rank; None for a process alone, whose means are those of the batch.

    Every rank calls it for every batch.

    Args:
        num_images: of this rank.
        positives: of this rank at each level.
        dtype: of the losses.
    """
    if processes().world_size == 1:
        return None
    counts = np.array([num_images, *positives], dtype)
    own, whole = ops.tensor(counts, device), ops.tensor(counts, device)
    dist.sum_(whole)
    shares = own / ops.clamp(whole, low=1.0)
    return BatchShares(shares[0], shares[1:], whole[0] * float(processes().world_size))
