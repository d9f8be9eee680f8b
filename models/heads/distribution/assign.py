"""Task-aligned assignment: choose the cells that must predict an object from its candidates.

It depends on predictions, so it runs on the device without any synchronization: all shapes follow
from the candidates, and cells that are not chosen are kept with a score of 0.

Source: Feng et al. 2021, TOOD, arXiv:2108.07755: alignment combines a cell's class score and its
box overlap. Exponents and tie rules match the stored assignments of the public YOLOv8.
"""

from __future__ import annotations

from typing import NamedTuple

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.models.heads.anchor.boxes import BoxIou
from duet.models.heads.distribution.candidates import CHOSEN, Candidates, list_pairs
from duet.models.heads.distribution.rows import EDGE_LOGITS

SCORE_POWER, OVERLAP_POWER = 0.5, 6.0
EPS = 1e-9  # added to the largest alignment of an object


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
