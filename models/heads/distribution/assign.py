"""Task-aligned assignment: choose the cells that must predict an object from its candidates.

It depends on predictions, so it runs on the device without any synchronization: all shapes follow
from the candidates, and cells that are not chosen are kept with a score of 0.

Source: Feng et al. 2021, TOOD, arXiv:2108.07755: alignment combines a cell's class score and its
box overlap. Exponents and tie rules match the stored assignments of the public YOLOv8.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.models.heads.anchor.boxes import BoxIou
from duet.models.heads.distribution.candidates import CHOSEN, Candidates
from duet.models.heads.distribution.rows import EDGE_LOGITS

SCORE_POWER, OVERLAP_POWER = 0.5, 6.0
EPS = 1e-9  # added to the largest alignment of an object


class Assigned(NamedTuple):
    """E cells with the objects that they must predict.

    A cell may occur several times: once with its score, then with 0.
    """

    cell: Tensor  # (E,) int64, flat index over (B, N)
    object_index: Tensor  # (E,) int64
    scores: Tensor  # (E,) float: target score for the object's class


class _Pairs(NamedTuple):
    """`Candidates` on the device, with the alignment of each of the K pairs."""

    object_index: Tensor
    cell: Tensor
    claim: Tensor
    turn: Tensor
    rivals: Tensor
    row: Tensor
    place: Tensor
    number: Tensor  # (K,) int64: 0, 1, ...
    overlap: Tensor  # (K,) float
    alignment: Tensor  # (K,) float


def assign_cells(
    found: Candidates,
    boxes_cxcywh: Tensor,
    rows: Tensor,
    box_iou: BoxIou,
) -> Assigned:
    """Choose each object's best-aligned cells, excluding cells with zero alignment.

    A cell chosen by several objects goes to the one that its box overlaps most.

    Args:
        found: at least one pair.
        boxes_cxcywh: (B * N, 4) predictions, pixels, constant.
        rows: (B * N, 64 + C), constant; only the class logits are used.
    """
    pairs = _aligned(found, boxes_cxcywh, rows, box_iou)
    chosen, is_chosen = _best_of_objects(found, pairs)
    kept, counts = _settled(pairs, chosen, is_chosen, found.depth)
    largest = _largest_of_objects(found, pairs, kept, counts)
    of_object = ops.take_rows(largest, ops.take_rows(pairs.row, kept))
    scale = of_object[:, 1] / (of_object[:, 0] + EPS)
    scores = ops.take_rows(pairs.alignment, kept) * scale * counts
    return Assigned(
        ops.take_rows(pairs.cell, kept), ops.take_rows(pairs.object_index, kept), scores
    )


def _aligned(found: Candidates, boxes_cxcywh: Tensor, rows: Tensor, box_iou: BoxIou) -> _Pairs:
    device, (cells, outputs) = ops.device_of(boxes_cxcywh), rows.shape
    logit = found.cell * outputs + EDGE_LOGITS + found.class_index[found.object_index]
    fields = (*found[2:-1], np.arange(len(found.cell)), logit)
    indices = ops.tensor(np.stack(fields), device)
    objects = ops.take_rows(ops.tensor(found.boxes_cxcywh, device), indices[0])
    overlap = box_iou(ops.take_rows(boxes_cxcywh, indices[1]), objects)
    overlap = ops.clamp(overlap, low=0.0)
    logits = ops.take_rows(rows.reshape(cells * outputs), indices[-1])
    alignment = ops.sigmoid(logits) ** SCORE_POWER * overlap**OVERLAP_POWER
    on_device = [indices[line] for line in range(len(fields) - 1)]
    return _Pairs._make([*on_device, overlap, alignment])


def _best_of_objects(found: Candidates, pairs: _Pairs) -> tuple[Tensor, Tensor]:
    """Return each object's best pairs, (E,) int64, and whether their alignment is above 0."""
    dtype, device = ops.dtype_of(pairs.alignment), ops.device_of(pairs.alignment)
    size = sum(rows * columns for rows, columns in found.tables)
    filled = ops.put_rows(ops.zeros((size,), dtype, device), pairs.place, pairs.alignment)
    pair_at = ops.put_rows(ops.zeros((size,), "int64", device), pairs.place, pairs.number)
    values, places = [], []
    for start, (rows, columns) in zip(_starts(found), found.tables, strict=True):
        table = filled[start : start + rows * columns].reshape(rows, columns)
        best, column = ops.top_k(table, CHOSEN)
        first = ops.tensor(start + columns * np.arange(rows).reshape(rows, 1), device)
        values.append(best.reshape(-1))
        places.append((column + first).reshape(-1))
    return ops.take_rows(pair_at, ops.cat(places)), ops.cat(values) > 0.0


def _settled(pairs: _Pairs, chosen: Tensor, is_chosen: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Resolve conflicts: return the pairs (E,) that win each chosen cell, and 1 for each that
    counts, or 0 if an earlier one has the same cell or nothing was chosen.

    depth: largest number of pairs per cell.
    """
    dtype, device = ops.dtype_of(pairs.overlap), ops.device_of(pairs.overlap)
    number, end = chosen.shape[0], pairs.claim.shape[0]
    claim, own = ops.take_rows(pairs.claim, chosen), ops.take_rows(pairs.turn, chosen)
    # The claims on each cell, (E, depth), padded with `end`.
    turns = ops.tensor(np.arange(depth).reshape(1, depth), device)
    there = turns < ops.take_rows(pairs.rivals, chosen).reshape(number, 1)
    claims = ops.where(there, (claim - own).reshape(number, 1) + turns, end).reshape(-1)
    # Pairs that were not chosen are written to separate positions after all claims.
    behind = ops.tensor(end + 1 + np.arange(number), device)
    marks = ops.put_rows(
        ops.zeros((end + 1 + number,), dtype, device),
        ops.where(is_chosen, claim, behind),
        ops.full((number,), 1.0, dtype, device),
    )
    others = ops.take_rows(marks, claims).reshape(number, depth)
    overlaps = ops.put_rows(ops.full((end + 1,), -1.0, dtype, device), pairs.claim, pairs.overlap)
    overlaps = ops.take_rows(overlaps, claims).reshape(number, depth)
    # Among equal overlaps, the first one wins.
    turns, own_turn = ops.cast(turns, dtype), ops.cast(own, dtype)
    best = ops.amax(overlaps, 1).reshape(number, 1)
    first = -ops.amax(ops.where(overlaps >= best, -turns, -float(depth)), 1)
    winner = ops.where(ops.sum(others, 1) > 1.5, first, own_turn)
    pair_of = ops.put_rows(ops.zeros((end,), "int64", device), pairs.claim, pairs.number)
    kept = ops.take_rows(pair_of, claim - own + ops.cast(winner, "int64"))
    before = ops.sum(ops.where(turns < own_turn.reshape(number, 1), others, 0.0), 1)
    counts = ops.where(before < 0.5, ops.cast(is_chosen, dtype), 0.0)
    return kept, counts


def _largest_of_objects(found: Candidates, pairs: _Pairs, kept: Tensor, counts: Tensor) -> Tensor:
    """Return the largest alignment and overlap in each table row, (R, 2)."""
    dtype, device, number = ops.dtype_of(counts), ops.device_of(counts), kept.shape[0]
    size = sum(rows * columns for rows, columns in found.tables)
    behind = ops.tensor(size + np.arange(number), device)
    places = ops.where(counts > 0.5, ops.take_rows(pairs.place, kept), behind)
    both = ops.stack([ops.take_rows(x, kept) for x in (pairs.alignment, pairs.overlap)], 1)
    filled = ops.put_rows(ops.zeros((size + number, 2), dtype, device), places, both)
    parts = [
        ops.amax(filled[start : start + rows * columns].reshape(rows, columns, 2), 1)
        for start, (rows, columns) in zip(_starts(found), found.tables, strict=True)
    ]
    return ops.cat(parts)


def _starts(found: Candidates) -> list[int]:
    """Return the start of each table."""
    sizes = [rows * columns for rows, columns in found.tables]
    return [0, *accumulate(sizes[:-1])]
