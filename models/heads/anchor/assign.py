"""Target assignment: find the cells of each level that must predict a batch's targets.

Assignment depends only on targets and anchors, not on predictions. It is computed in NumPy on the
host, so that both backends get the same one without reading from the device. Source: the public
YOLOv5 recipe, checked against its stored results.

The device receives exactly the rows needed or, for compiled functions, which recompile for each
input shape, rows padded with weight 0 to one of a few sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duet.utils.data.loading.batch import Targets

# In cells: the cell containing the centre, then its left, upper, right and lower neighbours. A
# neighbour is used if the centre is in the adjacent half of its cell.
NEIGHBOUR_SHIFTS = np.array([[0, 0], [0.5, 0], [0, 0.5], [-0.5, 0], [0, -0.5]], np.float32)
NEIGHBOUR_REACH = 0.5
SMALLEST_SIZE = 256  # rows per level


class Assignment(NamedTuple):
    """The P positives of one level; boxes and anchors in cells of that level."""

    image_index: np.ndarray  # (P,) int64
    anchor_index: np.ndarray  # (P,) int64
    row: np.ndarray  # (P,) int64
    column: np.ndarray  # (P,) int64
    boxes_cxcywh: np.ndarray  # (P, 4) float32, centre relative to the cell's corner
    anchors_wh: np.ndarray  # (P, 2) float32
    class_index: np.ndarray  # (P,) int64
    target_index: np.ndarray  # (P,) int64, index into the batch's targets


def assign_targets(
    targets: Targets,
    anchors: np.ndarray,
    grids: Sequence[tuple[int, int]],
    max_side_ratio: float,
) -> list[Assignment]:
    """Match targets with anchors of similar size, in their cell and up to two neighbours.

    Args:
        targets: T targets of a batch.
        anchors: (levels, A, 2) width and height in cells of the level.
        grids: (height, width) of each level in cells.
        max_side_ratio: an anchor matches if both sides differ by less than this factor.

    Returns:
        One assignment per level; a target may occur several times in it, or not at all.
    """
    return [
        _assign_level(targets, level_anchors.astype(np.float32), grid, max_side_ratio)
        for level_anchors, grid in zip(anchors, grids, strict=True)
    ]


def _assign_level(
    targets: Targets, anchors: np.ndarray, grid: tuple[int, int], max_side_ratio: float
) -> Assignment:
    height, width = grid
    cells = np.array([width, height, width, height], np.float32)
    boxes = targets.boxes_cxcywh_norm.astype(np.float32) * cells
    anchor_index, target_index = _match_anchors(boxes[:, 2:], anchors, max_side_ratio)
    boxes = boxes[target_index]
    shift_index, match_index = _choose_cells(boxes[:, :2], cells[:2])
    anchor_index, target_index = anchor_index[match_index], target_index[match_index]
    boxes = boxes[match_index]
    corner = np.trunc(boxes[:, :2] - NEIGHBOUR_SHIFTS[shift_index])
    corner = np.clip(corner, 0, cells[:2] - 1)
    return Assignment(
        image_index=targets.image_index[target_index],
        anchor_index=anchor_index,
        row=corner[:, 1].astype(np.int64),
        column=corner[:, 0].astype(np.int64),
        boxes_cxcywh=np.concatenate([boxes[:, :2] - corner, boxes[:, 2:]], axis=1),
        anchors_wh=anchors[anchor_index],
        class_index=targets.class_index[target_index],
        target_index=target_index,
    )


def _match_anchors(
    sizes_wh: np.ndarray, anchors: np.ndarray, max_side_ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """Match sizes (T, 2) and (A, 2) in cells; return indices (anchor, target), anchor by anchor."""
    ratio = sizes_wh[None] / anchors[:, None]
    with np.errstate(divide="ignore"):  # a zero side has an infinite ratio and never matches
        worst = np.maximum(ratio, 1 / ratio).max(axis=2)
    anchor_index, target_index = np.nonzero(worst < max_side_ratio)
    return anchor_index, target_index


def _choose_cells(centres: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Choose cells for centres (K, 2) in cells; return indices (shift, centre), shift by shift.

    Neighbours outside the grid of `cells` (width, height) are skipped.
    """
    from_far = cells - centres
    near = (centres % 1 < NEIGHBOUR_REACH) & (centres > 1)
    far = (from_far % 1 < NEIGHBOUR_REACH) & (from_far > 1)
    own = np.ones((1, len(centres)), bool)
    shift_index, centre_index = np.nonzero(np.concatenate([own, near.T, far.T]))
    return shift_index, centre_index


class Positives(NamedTuple):
    """The positives of all levels, concatenated: K rows.

    The rows of `indices` are, for each positive:
    - its flat cell index over (B, H, W, A);
    - the position of its objectness: its flat index over (B, A, H, W) or, padded, (B, H, W, A). If
      a later row claims the same cell, and for padding, a separate position after all cells;
    - its class, or C for padding.
    """

    sizes: tuple[int, ...]  # rows per level
    indices: np.ndarray  # (3, K) int64
    numbers: np.ndarray  # (K, 7): target cxcywh and anchor wh in cells, weight: 1 / positives


def join_assignments(
    assignments: Sequence[Assignment],
    shapes: Sequence[Sequence[int]],
    num_classes: int,
    padded: bool,
) -> Positives:
    """Join levels into exactly the rows needed or, padded, `padded_size` rows per level.

    Args:
        shapes: (B, A, H, W, outputs) per level.
    """
    counts = [len(found.row) for found in assignments]
    sizes = [padded_size(max(counts))] * len(counts) if padded else counts
    levels = [
        _rows_of(found, shape, num_classes, size, padded)
        for found, shape, size in zip(assignments, shapes, sizes, strict=True)
    ]
    indices, numbers = zip(*levels, strict=True)
    return Positives(tuple(sizes), np.concatenate(indices, axis=1), np.concatenate(numbers))


def padded_size(count: int) -> int:
    """Return the smallest of 256, 512, 1024, ... that is at least count."""
    return max(SMALLEST_SIZE, 1 << (count - 1).bit_length())


def _rows_of(
    found: Assignment, shape: Sequence[int], num_classes: int, size: int, padded: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return one level's indices (3, size) and numbers (size, 7)."""
    _, anchors, height, width = shape[:4]
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
    indices[2] = num_classes
    indices[2, :count] = found.class_index
    numbers = np.ones((size, 7))
    numbers[:count, :4] = found.boxes_cxcywh
    numbers[:count, 4:6] = found.anchors_wh
    numbers[:, 6] = 0
    numbers[:count, 6] = 1 / max(count, 1)
    return indices, numbers


def last_claims(cells: np.ndarray) -> np.ndarray:
    """Return the last position of each value: if several rows claim a cell, the last one wins.

    Frameworks do not define which of several writes wins; this keeps them equal.
    """
    _, from_end = np.unique(cells[::-1], return_index=True)
    return len(cells) - 1 - from_end
