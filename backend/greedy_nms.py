"""Exact greedy suppression in NumPy, what `contract.Ops.suppress` promises; no framework here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def suppress_greedily(
    boxes_xyxy: np.ndarray, group: np.ndarray, iou_threshold: float, max_kept: int
) -> np.ndarray:
    """`contract.Ops.suppress` of arrays, with the threshold as it is given."""

    def search(length: int) -> np.ndarray:
        return _suppress_all(boxes_xyxy[:length], group[:length], iou_threshold, max_kept)

    return search_prefixes(search, len(boxes_xyxy), max_kept)


def search_prefixes(search: Callable[[int], np.ndarray], count: int, max_kept: int) -> np.ndarray:
    """What search(number of first rows) keeps, of as few rows as give the first max_kept."""
    # Suppression of a prefix is a prefix of the suppression of everything, and the rows allowed
    # are usually found among the first few thousand.
    length = 2 * max_kept
    while length < count:
        kept = search(length)
        if len(kept) == max_kept:
            return kept
        length *= 4
    return search(count)


def _suppress_all(
    boxes_xyxy: np.ndarray, group: np.ndarray, iou_threshold: float, max_kept: int
) -> np.ndarray:
    """suppress_greedily, with every box prepared before the first is kept."""
    # Sorted by group a box meets one slice: its own group, behind itself.
    by_group = np.argsort(group, kind="stable")
    place = np.empty_like(by_group)
    place[by_group] = np.arange(len(by_group))
    group_end = np.searchsorted(group[by_group], group, side="right").tolist()
    overlaps = _OverlapSearch(boxes_xyxy[by_group])
    alive = np.ones(len(boxes_xyxy), dtype=bool)
    kept: list[int] = []
    for row, index in enumerate(place.tolist()):
        if not alive[index]:
            continue
        kept.append(row)
        if len(kept) == max_kept:
            break
        alive[overlaps.above(iou_threshold, index, group_end[row], alive)] = False
    return np.array(kept, dtype=np.int64)


class _OverlapSearch:
    """Boxes laid out for asking, again and again, which of them one box overlaps."""

    def __init__(self, boxes_xyxy: np.ndarray) -> None:
        self.edges = np.ascontiguousarray(boxes_xyxy.T)
        self.exact_edges = self.edges.astype(np.float64)
        left, top, right, bottom = self.exact_edges
        self.area = (right - left) * (bottom - top)

    def above(self, iou_threshold: float, index: int, end: int, alive: np.ndarray) -> np.ndarray:
        """Which of the boxes index + 1 ... end - 1 alive have an IoU with box index above it."""
        behind = slice(index + 1, end)
        left, top, right, bottom = self.edges
        near = (left[behind] < right[index]) & (right[behind] > left[index])
        near &= (top[behind] < bottom[index]) & (bottom[behind] > top[index])
        near &= alive[behind]
        others = np.flatnonzero(near) + index + 1
        return others[self._iou(index, others) > iou_threshold]

    def _iou(self, index: int, others: np.ndarray) -> np.ndarray:
        """(len(others),) float64 IoU with boxes whose sides are known to overlap."""
        left, top, right, bottom = self.exact_edges
        width = np.minimum(right[index], right[others]) - np.maximum(left[index], left[others])
        height = np.minimum(bottom[index], bottom[others]) - np.maximum(top[index], top[others])
        intersection = width * height
        union = self.area[index] + self.area[others] - intersection
        return np.divide(intersection, union, out=np.zeros_like(union), where=union > 0)
