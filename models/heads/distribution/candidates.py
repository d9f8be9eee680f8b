"""Candidates: which cells may predict an object, by where their centres lie.

That depends on targets alone. It is computed in NumPy on the host, where the targets are, while the
device is still busy with the forward pass. Source: Feng et al. 2021, TOOD, arXiv:2108.07755; the
least side by the stored assignments of the public YOLOv8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duet.utils.data.loading.batch import Targets

CHOSEN = 10  # cells of an object at most
INSIDE = 1e-9  # pixels that a centre must be inside of a box at least
# An object's candidates stand in a row of a table, for the device to choose the best. Objects with
# about as many share a table, so that few places are empty.
WIDTHS = (64, 512)


class Candidates(NamedTuple):
    """K pairs of one of T objects and a cell, object after object.

    Cells are counted over (B, N), N being the cells of all levels of an image.
    """

    boxes_cxcywh: np.ndarray  # (T, 4) float, pixels
    class_index: np.ndarray  # (T,) int64
    object_index: np.ndarray  # (K,) int64
    cell: np.ndarray  # (K,) int64
    claim: np.ndarray  # (K,) int64: its position if pairs stood cell after cell
    turn: np.ndarray  # (K,) int64: how many pairs of the cell stand before it
    rivals: np.ndarray  # (K,) int64: how many the cell has
    row: np.ndarray  # (K,) int64: that of its object in all tables
    place: np.ndarray  # (K,) int64, in all tables, whose rows lie one after the other
    tables: tuple[tuple[int, int], ...]  # rows and columns of each

    @property
    def depth(self) -> int:
        """Return the most pairs that a cell has."""
        return int(self.rivals.max(initial=0))


def find_candidates(
    targets: Targets, grids: Sequence[tuple[int, int]], strides: Sequence[int], dtype: str
) -> Candidates:
    """Return the pairs of each object and the cells whose centres lie inside its box.

    Args:
        grids: (height, width) of each level in cells.
        dtype: in which boxes are computed: that of the loss.
    """
    height, width = (side * strides[0] for side in grids[0])
    boxes = targets.boxes_cxcywh_norm.astype(dtype) * np.array([width, height] * 2, dtype)
    # So that small objects have candidates too, a side counts as two cells of the finest level.
    least = strides[min(1, len(strides) - 1)]
    half = np.maximum(boxes[:, 2:], least) / 2
    low, high = boxes[:, :2] - half, boxes[:, :2] + half
    inside = [
        _inside(low[:, 1], high[:, 1], rows, stride)[:, :, None]
        & _inside(low[:, 0], high[:, 0], columns, stride)[:, None]
        for (rows, columns), stride in zip(grids, strides, strict=True)
    ]
    flat = np.concatenate([x.reshape(len(boxes), x.shape[1] * x.shape[2]) for x in inside], axis=1)
    object_index, position = np.nonzero(flat)
    cell = targets.image_index[object_index] * flat.shape[1] + position
    row, place, tables = _laid_out(object_index, len(boxes))
    claims = _claims(cell)
    return Candidates(boxes, targets.class_index, object_index, cell, *claims, row, place, tables)


def _inside(low: np.ndarray, high: np.ndarray, cells: int, stride: int) -> np.ndarray:
    """Return whether the centres of a row of cells lie between edges (T,), (T, cells)."""
    centres = ((np.arange(cells) + 0.5) * stride).astype(low.dtype)
    gap = np.minimum(centres - low[:, None], high[:, None] - centres)
    return np.asarray(gap > INSIDE)


def _claims(cell: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return of each pair its claim, turn and rivals, (K,) int64 each."""
    order = np.argsort(cell, kind="stable")
    ordered, claim = cell[order], np.empty(len(cell), np.int64)
    claim[order] = np.arange(len(cell))
    first, end = (np.searchsorted(ordered, cell, side=side) for side in ("left", "right"))
    return claim, claim - first, end - first


def _laid_out(
    object_index: np.ndarray, num_objects: int
) -> tuple[np.ndarray, np.ndarray, tuple[tuple[int, int], ...]]:
    """Return row and place of each pair in tables, and their rows and columns.

    object_index: (K,), ascending.
    """
    counts = np.bincount(object_index, minlength=num_objects)
    width = np.zeros(num_objects, np.int64)  # columns of an object's table
    tables = []
    bounds = (0, *WIDTHS, np.inf)
    for low, high in zip(bounds, bounds[1:], strict=False):
        members = (counts > low) & (counts <= high)
        if members.any():
            width[members] = max(int(counts[members].max()), CHOSEN)
            tables.append((int(members.sum()), int(width[members][0])))
    order = np.argsort(width, kind="stable")  # objects without candidates have no row
    row_of, start_of = np.zeros((2, num_objects), np.int64)
    row_of[order] = np.arange(num_objects) - (width == 0).sum()
    start_of[order] = np.cumsum(width[order]) - width[order]
    first = np.searchsorted(object_index, object_index)
    place = start_of[object_index] + np.arange(len(object_index)) - first
    return row_of[object_index], place, tuple(tables)
