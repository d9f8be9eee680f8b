"""Target assignment: find the cells of each level that must predict a batch's targets.

Assignment depends only on targets and anchors, not on predictions. It is computed in NumPy on the
host, so that both backends get the same one without reading from the device. Source: the public
YOLOv5 recipe, checked against its stored results.

The device receives the rows of all levels, padded with a weight of 0: on a GPU and for compiled
functions to one of a few sizes, because graphs and memory are kept for each shape.
"""

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
    boxes = np.ascontiguousarray(targets.boxes_cxcywh_norm.T, np.float32)
    return [
        _assign_level(targets, boxes, level_anchors, grid, max_side_ratio)
        for level_anchors, grid in zip(anchors.astype(np.float32), grids, strict=True)
    ]


def _assign_level(
    targets: Targets,
    boxes: np.ndarray,
    anchors: np.ndarray,
    grid: tuple[int, int],
    max_side_ratio: float,
) -> Assignment:
    """Assign a level; boxes: (4, T) cxcywh, because NumPy is slow along an axis of two or four."""
    height, width = grid
    cells = np.array([[width], [height]], np.float32)
    centres, sizes = boxes[:2] * cells, boxes[2:] * cells
    fits, used = _match_anchors(sizes, anchors, max_side_ratio), _choose_cells(centres, cells)
    positives = used[:, None] & fits  # (5, A, T)
    shift_index, anchor_index, target_index = np.unravel_index(
        np.flatnonzero(positives), positives.shape
    )
    centre = centres.take(target_index, 1)
    corner = np.trunc(centre - NEIGHBOUR_SHIFTS.T.take(shift_index, 1))
    corner = np.minimum(np.maximum(corner, 0), cells - 1)
    return Assignment(
        image_index=targets.image_index.take(target_index),
        anchor_index=anchor_index,
        row=corner[1].astype(np.int64),
        column=corner[0].astype(np.int64),
        boxes_cxcywh=np.concatenate([centre - corner, sizes.take(target_index, 1)]).T,
        anchors_wh=anchors.take(anchor_index, 0),
        class_index=targets.class_index.take(target_index),
        target_index=target_index,
    )


def _match_anchors(sizes_wh: np.ndarray, anchors: np.ndarray, max_side_ratio: float) -> np.ndarray:
    """Return which of (A, 2) anchors fit sizes (2, T) in cells, (A, T) bool."""
    ratio = sizes_wh[:, None] / anchors.T[:, :, None]
    with np.errstate(divide="ignore"):  # a zero side has an infinite ratio and never matches
        return np.all(np.maximum(ratio, 1 / ratio) < max_side_ratio, axis=0)


def _choose_cells(centres: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return which of `NEIGHBOUR_SHIFTS` are used for centres (2, T) in cells, (5, T) bool.

    Neighbours outside the grid of `cells` (width, height), (2, 1), are not.
    """
    from_far = cells - centres
    near = (centres % 1 < NEIGHBOUR_REACH) & (centres > 1)
    far = (from_far % 1 < NEIGHBOUR_REACH) & (from_far > 1)
    own = np.ones((1, centres.shape[1]), bool)
    return np.concatenate([own, near, far])


class Positives(NamedTuple):
    """The positives of all levels, concatenated: K rows.

    Rows beyond the positives of a level repeat them with a weight of 0. The rows of `indices` are:
    - the flat cell index over (B, H, W, A) of the level;
    - the place of its objectness: its flat index over the cells of all levels. For rows of weight 0
      and if a later row claims the same cell, a separate place after all cells;
    - its class;
    - its level.
    """

    sizes: tuple[int, ...]  # rows per level
    indices: np.ndarray  # (4, K) int64
    numbers: np.ndarray  # (K, 7): target cxcywh and anchor wh in cells, weight: 1 / positives


def join_assignments(
    assignments: Sequence[Assignment],
    shapes: Sequence[Sequence[int]],
    padded: bool,
    dtype: str = "float32",
) -> Positives:
    """Join levels, each with at least a row if there are images; padded: `padded_size` rows.

    Args:
        shapes: (B, A, H, W, outputs) per level.
        dtype: dtype of `numbers`.
    """
    counts = [len(found.row) for found in assignments]
    least = min(shapes[0][0], 1)
    sizes = [padded_size(max(counts)) if padded else max(count, least) for count in counts]
    cells = [math.prod(shape[:4]) for shape in shapes]
    indices, numbers = np.empty((4, sum(sizes)), np.int64), np.zeros((sum(sizes), 7), dtype)
    for level, (found, size, shape) in enumerate(zip(assignments, sizes, shapes, strict=True)):
        _, anchors, height, width = shape[:4]
        start, count = sum(sizes[:level]), counts[level]
        cell = (found.image_index * height + found.row) * width + found.column
        cell = cell * anchors + found.anchor_index
        places = sum(cells) + start + np.arange(size)
        wins = wins_cell(cell, cells[level])
        places[:count][wins] = sum(cells[:level]) + cell[wins]
        span = slice(start, start + size)
        fields = np.resize(cell, size), places, np.resize(found.class_index, size)
        indices[:, span] = *fields, np.full(size, level)
        numbers[span, :4] = np.resize(found.boxes_cxcywh, (size, 4))
        numbers[span, 4:6] = np.resize(found.anchors_wh, (size, 2))
        numbers[start : start + count, 6] = 1 / max(count, 1)
    return Positives(tuple(sizes), indices, numbers)


def padded_size(count: int) -> int:
    """Return the smallest of 256, 512, 1024, ... that is at least count."""
    return max(SMALLEST_SIZE, 1 << (count - 1).bit_length())


def wins_cell(cell: np.ndarray, cells: int) -> np.ndarray:
    """Return which rows win their cell, (K,) bool: the last one of several that claim it.

    Frameworks do not define which of several writes wins; NumPy does.
    """
    order, last = np.arange(len(cell), dtype=np.int32), np.empty(cells, np.int32)
    last[cell] = order
    return last[cell] == order
