"""Task-aligned assignment: choose the cells that must predict an object.

Its candidates are the cells whose centres are inside the object, a rectangle on each level. The
host computes the rectangles' sides, which depend on targets alone; the device lists the cells. The
choice depends on predictions, so it runs on the device without any synchronization: all shapes
follow from the candidates, and cells that are not chosen are kept with a score of 0.

Source: Feng et al. 2021, TOOD, arXiv:2108.07755: alignment combines a cell's class score and its
box overlap. Exponents, tie rules and the minimum side match the stored assignments of the public
YOLOv8.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.models.heads.anchor.assign import padded_size
from duet.models.heads.anchor.boxes import BoxIou
from duet.models.heads.distribution.rows import EDGE_LOGITS
from duet.utils.data.loading.batch import Targets

CHOSEN = 10  # maximum number of cells per object
INSIDE = 1e-9  # minimum distance of a centre to the box's edges, pixels
SCORE_POWER, OVERLAP_POWER = 0.5, 6.0
EPS = 1e-9  # added to the largest alignment of an object
MOST_ADDED = 2**20  # pairs; a float32 holds their quotients in `list_pairs`


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
    number = len(targets.class_index)
    number = padded_size(number + 1) if padded else max(number, 1)
    missing = number - len(targets.class_index)
    height, width = (side * strides[0] for side in grids[0])
    boxes = targets.boxes_cxcywh_norm.astype(dtype) * np.array([width, height] * 2, dtype)
    rows, columns = (_spans(boxes[:, axis::2], grids, strides, 1 - axis) for axis in (1, 0))
    counts = rows[..., 1] * columns[..., 1]
    per_object = counts.sum(1)
    table = padded_size(int(per_object.max(initial=CHOSEN))) if padded else None
    table = table or int(per_object.max(initial=CHOSEN))
    total = int(counts.sum())
    step = min(padded_size(total + 1), MOST_ADDED)
    surplus = step - total % step if padded else int(total == 0)
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


class Assigned(NamedTuple):
    """E = 10 T cells with the objects that they must predict.

    A cell may occur several times: once with its score, then with 0.
    """

    cell: Tensor  # (E,) int64, flat index over (B, N)
    object_index: Tensor  # (E,) int64
    scores: Tensor  # (E,) float: target score for the object's class


def assign_cells(
    found: Candidates,
    boxes_cxcywh: Tensor,
    rows: Tensor,
    box_iou: BoxIou,
) -> Assigned:
    """Choose each object's best-aligned cells, excluding cells with zero alignment.

    A cell chosen by several objects goes to the one that its box overlaps most.

    Args:
        boxes_cxcywh: (B * N, 4) predictions, pixels, constant; at least one.
        rows: (B * N, 64 + C), constant; only the class logits are used.
    """
    dtype, device = ops.dtype_of(boxes_cxcywh), ops.device_of(boxes_cxcywh)
    pairs = list_pairs(found, device)
    overlap, alignment = _aligned(
        found, pairs.object_index, pairs.cell, boxes_cxcywh, rows, box_iou
    )
    chosen, is_chosen = _best_of_objects(found, pairs.place, alignment)
    winner = _largest_overlaps(pairs.cell, overlap, rows.shape[0])
    cell = ops.take_rows(pairs.cell, chosen)
    several, is_first = _claims(cell, is_chosen, rows.shape[0])
    kept = ops.where(several, ops.take_rows(winner, cell), chosen)
    counts = ops.cast(is_first, dtype)
    owner = ops.take_rows(pairs.object_index, kept)
    alignment, overlap = (ops.take_rows(x, kept) * counts for x in (alignment, overlap))
    nothing = ops.zeros((len(found.class_index),), dtype, device)
    largest, widest = (ops.put_largest(nothing, owner, x) for x in (alignment, overlap))
    return Assigned(cell, owner, alignment * ops.take_rows(widest / (largest + EPS), owner))


def _aligned(
    found: Candidates,
    object_index: Tensor,
    cell: Tensor,
    boxes_cxcywh: Tensor,
    rows: Tensor,
    box_iou: BoxIou,
) -> tuple[Tensor, Tensor]:
    """Return the overlap and alignment of each pair, (K,); 0 for those of no object."""
    device, (cells, outputs) = ops.device_of(boxes_cxcywh), rows.shape
    objects = ops.take_rows(ops.tensor(found.boxes_cxcywh, device), object_index)
    overlap = ops.clamp(box_iou(ops.take_rows(boxes_cxcywh, cell), objects), low=0.0)
    classes = ops.take_rows(ops.tensor(found.class_index, device), object_index)
    logits = ops.take_rows(rows.reshape(cells * outputs), cell * outputs + classes + EDGE_LOGITS)
    return overlap, ops.sigmoid(logits) ** SCORE_POWER * overlap**OVERLAP_POWER


def _best_of_objects(found: Candidates, place: Tensor, alignment: Tensor) -> tuple[Tensor, Tensor]:
    """Return each object's best pairs, (E,) int64, and whether their alignment is above 0."""
    dtype, device = ops.dtype_of(alignment), ops.device_of(alignment)
    objects, pairs = len(found.class_index), alignment.shape[0]
    end = objects * found.width
    table = ops.put_rows(ops.zeros((end + pairs,), dtype, device), place, alignment)
    pair_at = ops.zeros((end + pairs,), "int64", device)
    pair_at = ops.put_rows(pair_at, place, ops.arange(pairs, "int64", device))
    best, column = ops.top_k(table[:end].reshape(objects, found.width), CHOSEN)
    first = ops.arange(objects, "int64", device).reshape(objects, 1) * found.width
    return ops.take_rows(pair_at, (column + first).reshape(-1)), best.reshape(-1) > 0.0


def _largest_overlaps(cell: Tensor, overlap: Tensor, cells: int) -> Tensor:
    """Return the pair of each cell with the largest overlap, the first one of equal ones."""
    dtype, device, number = ops.dtype_of(overlap), ops.device_of(overlap), overlap.shape[0]
    largest = ops.put_largest(ops.full((cells,), -1.0, dtype, device), cell, overlap)
    from_end = number - ops.arange(number, "int64", device)
    from_end = ops.where(overlap >= ops.take_rows(largest, cell), from_end, 1)
    return number - ops.put_largest(ops.full((cells,), 1, "int64", device), cell, from_end)


def _claims(cell: Tensor, is_chosen: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """Return whether several objects chose a cell, and whether this is its first choice, (E,)."""
    device, number = ops.device_of(cell), cell.shape[0]
    order = ops.arange(number, "int64", device)
    claimed = ops.where(is_chosen, cell, cells)  # a place behind all cells for those of nobody
    none = ops.zeros((cells + 1,), "int64", device)
    last, from_end = (
        ops.take_rows(ops.put_largest(none, claimed, x), claimed) for x in (order, number - order)
    )
    is_first = ops.where(is_chosen, number - order, -1) >= from_end
    return last + from_end > number, is_first
