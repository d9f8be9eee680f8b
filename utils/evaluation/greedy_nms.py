"""Exact greedy NMS of sorted boxes in NumPy: `nms.py` says which boxes and in which order.

It runs on the host alone: reading a tensor waits for all that a framework has queued.
"""

from __future__ import annotations

import numpy as np

# Measured on real predictions: smaller blocks need more calls, larger ones more comparisons.
BLOCK = 192
# Few rows are kept. Beyond this many, one pass over the rest for each kept row is cheaper.
STAGE = 4096
PURGES_A_PACKING = 16


def suppress_greedily(
    boxes_xyxy: np.ndarray, group: np.ndarray, iou_threshold: float, max_kept: int
) -> np.ndarray:
    """Return the rows that remain when each kept box removes the later ones that it overlaps.

    Args:
        boxes_xyxy: (N, 4) float32, finite, best first, left <= right and top <= bottom.
        group: (N,) int64; boxes of different groups never meet.
        iou_threshold: a box is removed when its IoU with a kept one is above this. IoU is in
            float64; boxes that only touch or lack area have 0.
        max_kept: the search ends when this many are kept.

    Returns:
        (K,) int64, ascending.
    """
    overlaps = _OverlapSearch(boxes_xyxy, group, iou_threshold)
    kept = np.zeros(0, np.int64)
    rest: np.ndarray = np.arange(len(boxes_xyxy))
    while len(rest) > 0 and len(kept) < max_kept:
        found = _first_kept(overlaps, rest[:STAGE], max_kept - len(kept))
        kept = np.concatenate((kept, found))
        rest = rest[STAGE:]
        if len(rest) > 0 and len(kept) < max_kept:
            rest = overlaps.purged(rest, found)
    return kept


def _first_kept(overlaps: _OverlapSearch, rows: np.ndarray, max_kept: int) -> np.ndarray:
    """Return the first max_kept of the rows that stay, as if no other row came before them."""
    kept = np.zeros(0, np.int64)
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        removed = np.zeros(len(block), bool)
        removed[overlaps.pairs(block, kept)[0]] = True
        kept = np.concatenate((kept, _kept_of_block(overlaps, block[~removed])))
        if len(kept) >= max_kept:
            break
    return kept[:max_kept]


def _kept_of_block(overlaps: _OverlapSearch, rows: np.ndarray) -> np.ndarray:
    """Return the rows that stay, from the pairs of them that overlap."""
    alive = [True] * len(rows)
    better, worse = overlaps.pairs(rows, rows, ascending=True)
    for winner, loser in zip(better.tolist(), worse.tolist(), strict=True):
        if alive[winner]:
            alive[loser] = False
    return rows[np.array(alive, bool)]


class _OverlapSearch:
    """Boxes laid out for many searches for overlaps within a group."""

    def __init__(self, boxes_xyxy: np.ndarray, group: np.ndarray, iou_threshold: float) -> None:
        self.edges = np.ascontiguousarray(boxes_xyxy.T)
        self.exact_edges = self.edges.astype(np.float64)
        left, top, right, bottom = self.exact_edges
        self.area = (right - left) * (bottom - top)
        self.group = group
        self.is_one_group = bool((group == group[:1]).all())
        self.iou_threshold = iou_threshold

    def pairs(
        self, rows: np.ndarray, others: np.ndarray, ascending: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions in rows and in others of overlapping pairs, sorted in this order.

        Args:
            ascending: only pairs with a lower position in rows than in others.
        """
        if self.is_one_group:
            near = self._touch(self.edges[:, rows, None], self.edges[:, None, others])
        else:
            near = self.group[rows, None] == self.group[others]
        if ascending:
            near = np.triu(near, 1)
        place, other_place = np.divmod(np.flatnonzero(near), max(len(others), 1))
        row, other = rows.take(place), others.take(other_place)
        if not self.is_one_group:
            touching = self._touch(self.edges.take(row, axis=1), self.edges.take(other, axis=1))
            place, other_place = place[touching], other_place[touching]
            row, other = row[touching], other[touching]
        above = self._iou(row, other) > self.iou_threshold
        return place[above], other_place[above]

    def purged(self, rows: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Return the rows that overlap none of the kept ones."""
        for start in range(0, len(kept), PURGES_A_PACKING):
            edges, group = self.edges[:, rows], self.group[rows]
            alive = np.ones(len(rows), bool)
            for index in kept[start : start + PURGES_A_PACKING]:
                near = self._touch(edges, self.edges[:, index])
                near &= alive
                if not self.is_one_group:
                    near &= group == self.group[index]
                place = np.flatnonzero(near)
                alive[place[self._iou(index, rows[place]) > self.iou_threshold]] = False
            rows = rows[alive]
        return rows

    @staticmethod
    def _touch(edges: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return where boxes overlap at all; left, top, right, bottom along the first axis."""
        (left, top, right, bottom), (left_o, top_o, right_o, bottom_o) = edges, others
        near = left < right_o
        near &= right > left_o
        near &= top < bottom_o
        near &= bottom > top_o
        return near

    def _iou(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the float64 IoU, row by row, of boxes that are known to overlap."""
        left, top, right, bottom = self.exact_edges
        width = np.minimum(right.take(rows), right.take(others))
        width -= np.maximum(left.take(rows), left.take(others))
        height = np.minimum(bottom.take(rows), bottom.take(others))
        height -= np.maximum(top.take(rows), top.take(others))
        intersection = width * height
        union = self.area.take(rows) + self.area.take(others) - intersection
        return np.divide(intersection, union, out=np.zeros_like(union), where=union > 0)
