"""Candidates: the cells that may predict an object, because their centres are inside it.

On each level they form a rectangle. The host computes its sides, which depend on targets alone; the
device lists the cells. Source: Feng et al. 2021, TOOD, arXiv:2108.07755; the minimum side matches
the stored assignments of the public YOLOv8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.models.heads.anchor.assign import padded_size
from duet.utils.data.loading.batch import Targets

CHOSEN = 10  # maximum number of cells per object
INSIDE = 1e-9  # minimum distance of a centre to the box's edges, pixels


class Candidates(NamedTuple):
    """The T objects of a batch, and S rectangles of cells: one per object and level.

    Cells are flat indices over (B, N), with N the cells of all levels of an image. Objects and a
    last rectangle, whose cells are no object's, are added until the numbers of objects and pairs
    are one of a few, so that the device sees the same shapes again.
    """

    boxes_cxcywh: np.ndarray  # (T, 4) float, pixels
    class_index: np.ndarray  # (T,) int64
    counts: np.ndarray  # (S,) int64: cells of each rectangle, in the order of objects, then levels
    rectangles: np.ndarray  # (S, 6) int64: see `Pairs`
    width: int  # of a table with a row per object, at least CHOSEN and the most of an object
    num_pairs: int  # without those of the last rectangle


class Pairs(NamedTuple):
    """K pairs of an object and a cell, ordered by object; int64 on the device."""

    object_index: Tensor  # (K,)
    cell: Tensor  # (K,)
    place: Tensor  # (K,) place in the table (T, width), or behind it if of no object


def find_candidates(
    targets: Targets,
    grids: Sequence[tuple[int, int]],
    strides: Sequence[int],
    dtype: str,
    padded: bool = False,
) -> Candidates:
    """Return the rectangles of cells whose centres are inside the objects' boxes.

    Args:
        grids: (height, width) of each level in cells.
        dtype: dtype for computing boxes, the loss's.
        padded: add objects and pairs, up to one of a few numbers.
    """
    number = padded_size(len(targets.class_index) + 1) if padded else len(targets.class_index) + 1
    missing = number - len(targets.class_index)
    height, width = (side * strides[0] for side in grids[0])
    boxes = targets.boxes_cxcywh_norm.astype(dtype) * np.array([width, height] * 2, dtype)
    rows, columns = (_spans(boxes[:, axis::2], grids, strides, 1 - axis) for axis in (1, 0))
    counts = rows[..., 1] * columns[..., 1]
    per_object = counts.sum(1)
    table = padded_size(int(per_object.max(initial=CHOSEN))) if padded else None
    table = table or int(per_object.max(initial=CHOSEN))
    total = int(counts.sum())
    surplus = padded_size(total + 1) - total if padded else 1
    widths = np.array([width for _, width in grids])
    cells = np.array([height * width for height, width in grids])
    before = np.cumsum(cells) - cells
    first = targets.image_index[:, None] * cells.sum() + before
    first = first + rows[..., 0] * widths + columns[..., 0]
    starts = (np.cumsum(counts) - counts.reshape(-1)).reshape(counts.shape)
    in_object = np.cumsum(counts, axis=1) - counts
    objects = np.arange(len(boxes))[:, None] + np.zeros_like(counts)
    fields = (objects, starts, columns[..., 1], first, widths - columns[..., 1],
              objects * table + in_object)  # fmt: skip
    rectangles = np.stack(fields, -1).reshape(-1, len(fields))
    nobody = [number - 1, total, cells.sum(), 0, -cells.sum(), number * table]
    return Candidates(
        np.pad(boxes, ((0, missing), (0, 0))),
        np.pad(targets.class_index, (0, missing)),
        np.append(counts, surplus),
        np.concatenate([rectangles, [nobody]]),
        table,
        total,
    )


def _spans(
    boxes: np.ndarray, grids: Sequence[tuple[int, int]], strides: Sequence[int], axis: int
) -> np.ndarray:
    """Return the first cell and the number of cells inside boxes, (T, levels, 2), along an axis.

    boxes: (T, 2) centre and side. axis: 0 for rows, 1 for columns.
    """
    # Sides count as at least two cells of the finest level, so small objects have candidates too.
    half = np.maximum(boxes[:, 1:], strides[min(1, len(strides) - 1)]) / 2
    low, high = boxes[:, :1] - half, boxes[:, :1] + half
    found = []
    for grid, stride in zip(grids, strides, strict=True):
        centres = ((np.arange(grid[axis]) + 0.5) * stride).astype(low.dtype)
        inside = np.minimum(centres - low, high - centres) > INSIDE
        found.append(np.stack([inside.argmax(1), inside.sum(1)], -1))
    return np.stack(found, 1)


def list_pairs(found: Candidates, device: str) -> Pairs:
    """List the cells of all rectangles on the device."""
    rectangle = ops.repeated(found.counts, device)
    fields = ops.take_rows(ops.tensor(found.rectangles, device), rectangle)
    object_index, start, width, first, step, place = (fields[:, field] for field in range(6))
    number = ops.arange(int(found.counts.sum()), "int64", device) - start
    # A whole quotient; half a cell keeps it away from the next one, whatever the rounding.
    row = ops.cast((ops.cast(number, "float32") + 0.5) / ops.cast(width, "float32"), "int64")
    return Pairs(object_index, first + row * step + number, place + number)
