"""Test-time augmentation: how a model sees an image several times.

Before: a head says which passes its task takes. After: `models/inference/augmented.py` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Pass(NamedTuple):
    """How a model sees an image once."""

    scale: float
    mirrored: bool
    unused: Callable[[Sequence[int]], int] | None = None  # picks the stride of the map without rows


def used_levels(one: Pass, strides: Sequence[int]) -> list[int]:
    """Return the maps whose rows a pass gives: of a model with one stride, all."""
    unused = one.unused(strides) if one.unused else None
    used = [level for level, stride in enumerate(strides) if stride != unused]
    return used or list(range(len(strides)))


def brought_back(rows: np.ndarray, one: Pass, width: int) -> np.ndarray:
    """Return rows (K, 4 + ...) of a pass as if found in images of this width."""
    boxes_cxcywh = rows[:, :4] / np.float32(one.scale)
    if one.mirrored:
        boxes_cxcywh[:, 0] = width - boxes_cxcywh[:, 0]
    return np.concatenate([boxes_cxcywh, rows[:, 4:]], axis=1)
