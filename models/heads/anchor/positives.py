"""The assignment of a batch as arrays for the device: as many rows as needed, or a fixed number.

Before: `assign.py`. After: `loss.py`. A compiled function is compiled anew for each shape of its
inputs. For one, each level is filled up to one of a few sizes with rows of weight 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.heads.anchor.assign import Assignment
from models.heads.anchor.decode import BOX_CHANNELS

SMALLEST_SIZE = 256  # rows a level
SIZE_FACTOR = 4  # from one size to the next: each one may cost a compilation


class Positives(NamedTuple):
    """The positives of all levels, level after level, K rows in all.

    The rows of `indices` are, of each positive:
    - its cell, counted over (B, H, W, A);
    - where its objectness goes: its cell, counted over (B, A, H, W) or, padded, over (B, H, W, A);
      where a later row claims the same cell, and for padding, a place of its own behind all cells;
    - its class, C for padding.
    """

    sizes: tuple[int, ...]  # rows of each level
    indices: np.ndarray  # (3, K) int64
    numbers: np.ndarray  # (K, 7): target cxcywh and anchor wh in cells, weight: 1 / positives


def join_assignments(
    assignments: Sequence[Assignment], shapes: Sequence[Sequence[int]], padded: bool
) -> Positives:
    """Return the positives in exactly the rows that they need or, padded, in `padded_size` each.

    Args:
        shapes: (B, A, H, W, 5 + C) of each level.
    """
    counts = [len(found.row) for found in assignments]
    sizes = [padded_size(max(counts))] * len(counts) if padded else counts
    levels = [
        _rows_of(found, shape, size, padded)
        for found, shape, size in zip(assignments, shapes, sizes, strict=True)
    ]
    indices, numbers = zip(*levels, strict=True)
    return Positives(tuple(sizes), np.concatenate(indices, axis=1), np.concatenate(numbers))


def padded_size(count: int) -> int:
    """The smallest of 256, 1024, 4096, ... rows that hold so many positives."""
    size = SMALLEST_SIZE
    while size < count:
        size *= SIZE_FACTOR
    return size


def _rows_of(
    found: Assignment, shape: Sequence[int], size: int, padded: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Indices (3, size) and numbers (size, 7) of one level."""
    _, anchors, height, width, outputs = shape
    count = len(found.row)
    grid = (found.image_index * anchors + found.anchor_index) * height + found.row
    grid = grid * width + found.column
    memory = (found.image_index * height + found.row) * width + found.column
    memory = memory * anchors + found.anchor_index
    last = last_claims(memory)
    indices = np.zeros((3, size), np.int64)
    indices[0, :count] = memory
    indices[1] = math.prod(shape[:4]) + np.arange(size)
    indices[1, last] = (memory if padded else grid)[last]
    indices[2] = outputs - BOX_CHANNELS - 1
    indices[2, :count] = found.class_index
    numbers = np.ones((size, 7))
    numbers[:count, :4] = found.boxes_cxcywh
    numbers[:count, 4:6] = found.anchors_wh
    numbers[:, 6] = 0
    numbers[:count, 6] = 1 / max(count, 1)
    return indices, numbers


def last_claims(cells: np.ndarray) -> np.ndarray:
    """Return where each value occurs last: of several claims on a cell, the last one counts.

    Frameworks leave open which of several values for one place counts; this keeps them equal.
    """
    _, from_end = np.unique(cells[::-1], return_index=True)
    return len(cells) - 1 - from_end
