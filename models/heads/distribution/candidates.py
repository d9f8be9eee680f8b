"""Candidates: the cells that may predict an object, because their centres are inside it.

This depends only on targets and is computed in NumPy on the host, while the device is still busy
with the forward pass. Source: Feng et al. 2021, TOOD, arXiv:2108.07755; the minimum side matches
the stored assignments of the public YOLOv8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duet.utils.data.loading.batch import Targets

CHOSEN = 10  # maximum number of cells per object
INSIDE = 1e-9  # minimum distance of a centre to the box's edges, pixels
# Each object's candidates form a table row from which the device chooses the best. Objects with
# similar numbers of candidates share a table, to leave few entries empty.
WIDTHS = (64, 512)


class Candidates(NamedTuple):
    """K pairs of an object (of T) and a cell, ordered by object.

    Cells are flat indices over (B, N), with N the cells of all levels of an image.
    """

    boxes_cxcywh: np.ndarray  # (T, 4) float, pixels
    class_index: np.ndarray  # (T,) int64
    object_index: np.ndarray  # (K,) int64
    cell: np.ndarray  # (K,) int64
    claim: np.ndarray  # (K,) int64: position when ordered by cell
    turn: np.ndarray  # (K,) int64: index among the cell's pairs
    rivals: np.ndarray  # (K,) int64: number of the cell's pairs
    row: np.ndarray  # (K,) int64: the object's row, counted over all tables
    place: np.ndarray  # (K,) int64: flat position in the concatenated tables
    tables: tuple[tuple[int, int], ...]  # (rows, columns) of each

    @property
    def depth(self) -> int:
        """Return the largest number of pairs per cell."""
        return int(self.rivals.max(initial=0))


def find_candidates(
    targets: Targets, grids: Sequence[tuple[int, int]], strides: Sequence[int], dtype: str
) -> Candidates:
    """Return pairs of objects and the cells whose centres are inside their boxes.

    Args:
        grids: (height, width) of each level in cells.
        dtype: dtype for computing boxes, the loss's.
    """
    height, width = (side * strides[0] for side in grids[0])
    boxes = targets.boxes_cxcywh_norm.astype(dtype) * np.array([width, height] * 2, dtype)
    # Sides count as at least two cells of the finest level, so small objects have candidates too.
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
    """Return whether the centres of a row of cells are between edges (T,), as (T, cells)."""
    centres = ((np.arange(cells) + 0.5) * stride).astype(low.dtype)
    gap = np.minimum(centres - low[:, None], high[:, None] - centres)
    return np.asarray(gap > INSIDE)


def _claims(cell: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the claim, turn and rivals of each pair, (K,) int64 each."""
    order = np.argsort(cell, kind="stable")
    ordered, claim = cell[order], np.empty(len(cell), np.int64)
    claim[order] = np.arange(len(cell))
    first, end = (np.searchsorted(ordered, cell, side=side) for side in ("left", "right"))
    return claim, claim - first, end - first


def _laid_out(
    object_index: np.ndarray, num_objects: int
) -> tuple[np.ndarray, np.ndarray, tuple[tuple[int, int], ...]]:
    """Return each pair's row and place in the tables, and the tables' (rows, columns).

    object_index: (K,), ascending.
    """
    counts = np.bincount(object_index, minlength=num_objects)
    width = np.zeros(num_objects, np.int64)  # columns of the object's table
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
