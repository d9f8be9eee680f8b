"""What the losses of all heads need: their dtype, and the fraction of a batch that a piece has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from backend import dist, ops
from backend.contract import Tensor
from backend.processes import this_process
from models.heads.base import WholeBatch


def loss_dtype(raw: Tensor) -> str:
    """Return the dtype of a loss of raw maps: their own, float32 of half precision."""
    return "float64" if ops.dtype_of(raw) == "float64" else "float32"


class BatchParts(NamedTuple):
    """The fractions of the batch that a rank or a piece has: factors of its means, on the device.

    A mean over its rows times its fraction of all rows, summed over ranks and pieces, is the mean
    over all rows; the mean of the means is not.
    """

    images: Tensor  # 0-d: of the batch's images, those of the piece
    positives: Tensor  # (L,): of each level's positives, those of the piece; 0 of none
    total: Tensor  # 0-d: images of the batch times ranks: gradients are averaged over the ranks


def batch_parts(
    own: Sequence[int], all_pieces: Sequence[int], whole: WholeBatch | None, dtype: str, device: str
) -> BatchParts | None:
    """Return the fractions of this rank's piece; None if it is all of the batch.

    Every rank calls it for every batch.

    Args:
        own: number of images of the piece, then of its positives at each level.
        all_pieces: the same of all pieces of this rank.
        dtype: of the losses.
    """
    if this_process().world_size == 1 and own[0] == all_pieces[0]:
        return None
    sums = whole.over_ranks if whole is not None else None
    if sums is None:
        sums = ops.tensor(np.array(all_pieces, dtype), device)
        dist.sum_(sums)
        if whole is not None:
            whole.over_ranks = sums
    parts = ops.tensor(np.array(own, dtype), device) / ops.clamp(sums, low=1.0)
    return BatchParts(parts[0], parts[1:], sums[0] * float(this_process().world_size))
