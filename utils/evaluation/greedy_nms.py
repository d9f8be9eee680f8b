"""Exact greedy NMS of sorted boxes in NumPy: `nms.py` says which boxes and in which order.

It runs only on the host: reading a tensor waits for all that a framework has queued. Images are
processed together, because a call of NumPy takes longer than the few boxes of one image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

# Rows of an image that are decided together, at first and at most: each time half as many more,
# since most are removed at once. With fewer there are more calls, with more there are more
# comparisons of boxes that others of them remove. Measured on real predictions.
FIRST_STAGE, LAST_STAGE = 128, 2048
PAIRS = 2**14  # of boxes compared at once: bounds the memory, and the time where boxes lie in heaps
CROWD = 16  # kept boxes beside each row: where there are more, the best of them remove rows first
ROUNDING = 1e-6  # more than what a bound is wrong by, as a part of it
STEPS = 2**31  # into which the width of the scene is divided, to look for boxes beside a box


def suppress_greedily(
    boxes_xyxy: np.ndarray,
    group: np.ndarray,
    iou_threshold: float,
    max_kept: int,
    lengths: Sequence[int] | None = None,
) -> np.ndarray:
    """Return the rows that remain when each kept box removes the later ones that it overlaps.

    Args:
        boxes_xyxy: (N, 4) float32, best first. One without area, not finite or with right < left or
            bottom < top overlaps nothing.
        group: (N,) int64; boxes of different groups never meet.
        iou_threshold: a box is removed when its IoU with a kept one is above this. IoU is in
            float64; boxes that only touch have 0.
        max_kept: the search in an image ends when this many are kept.
        lengths: how many rows each image has, one after the other; None: they are of one image.

    Returns:
        (K,) int64, ascending.
    """
    counts = np.array([len(boxes_xyxy)] if lengths is None else lengths, np.int64)
    image = np.repeat(np.arange(len(counts)), counts)
    has_area = _has_area(boxes_xyxy)
    rows, is_kept = np.flatnonzero(has_area), ~has_area
    group = _groups_of_images(image, group)
    scene = _Scene(boxes_xyxy.take(rows, axis=0), group.take(rows), iou_threshold)
    is_kept[rows[_search(scene, image.take(rows), len(counts), max_kept)]] = True
    row = np.flatnonzero(is_kept)
    num_kept = np.bincount(image[row], minlength=len(counts))
    position = np.arange(len(row)) - np.repeat(np.cumsum(num_kept) - num_kept, num_kept)
    return row[position < max_kept]


def _has_area(boxes_xyxy: np.ndarray) -> np.ndarray:
    """Return (N,) bool: whether a box is finite, with left < right and top < bottom."""
    left, top, right, bottom = np.ascontiguousarray(boxes_xyxy.T)
    # What lies between finite edges is finite; a comparison with NaN is false.
    is_finite = (left > -np.inf) & (top > -np.inf) & (right < np.inf) & (bottom < np.inf)
    return is_finite & (left < right) & (top < bottom)


def _search(scene: _Scene, image: np.ndarray, num_images: int, max_kept: int) -> np.ndarray:
    """Return the rows of the scene that remain, until each image has max_kept or a few more."""
    counts = np.bincount(image, minlength=num_images)
    kept, num_kept = scene.place(np.zeros(0, np.int64)), np.zeros(num_images, np.int64)
    for rows in _stages(counts):
        rows = rows[num_kept[image[rows]] < max_kept]
        if len(rows) == 0:
            break
        found = scene.without_worse(scene.purged(scene.place(rows), kept))
        kept = _join(kept, found)
        num_kept += np.bincount(image[found.row], minlength=num_images)
    return kept.row


def _stages(counts: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows that are next in each image, ascending, until there are none."""
    first, done, step = np.cumsum(counts) - counts, 0, FIRST_STAGE
    while done < counts.max(initial=0):
        yield _ranges(first + done, (counts - done).clip(0, step))
        done, step = done + step, min(-(-3 * step // 2), LAST_STAGE)


def _ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return (first[0], first[0] + 1, ...), so many numbers of each."""
    before = np.cumsum(counts) - counts
    return np.repeat(first - before, counts) + np.arange(counts.sum())


def _cuts(counts: np.ndarray) -> np.ndarray:
    """Return where to cut counts, so that a part adds up to less than PAIRS and one count more."""
    return np.flatnonzero(np.diff(np.cumsum(counts) // PAIRS)) + 1


def _groups_of_images(image: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return (N,) int64 from 0 up: other numbers for the groups of other images."""
    group = group - group.min(initial=0)
    return image * (group.max(initial=0) + 1) + group


class _Placed(NamedTuple):
    """Rows (K,) sorted by position, to search for their neighbours."""

    row: np.ndarray  # int64
    place: np.ndarray  # int64: the group, and the centre along x
    first: np.ndarray  # int64: places of what can overlap it enough
    last: np.ndarray
    left: np.ndarray  # float64, as those that follow
    top: np.ndarray
    right: np.ndarray
    bottom: np.ndarray
    area: np.ndarray

    def take(self, index: np.ndarray) -> _Placed:
        return _Placed(*(field.take(index) for field in self))

    def part(self, start: int, end: int) -> _Placed:
        return _Placed(*(field[start:end] for field in self))

    def divided(self, count: int) -> tuple[_Placed, _Placed]:
        """Return those of the lowest row numbers, so many, and the others."""
        is_lower = self.row < np.partition(self.row, count)[count]
        return self.take(np.flatnonzero(is_lower)), self.take(np.flatnonzero(~is_lower))


def _join(one: _Placed, other: _Placed) -> _Placed:
    both = _chain(one, other)
    return both.take(np.argsort(both.place, kind="stable"))


def _chain(*parts: _Placed) -> _Placed:
    return _Placed(*map(np.concatenate, zip(*parts, strict=True)))


class _Scene:
    """Boxes laid out for many searches for overlaps within a group.

    An IoU above t needs a common width above t times that of either box. So along each axis the
    centre of one lies within (1 - t) times the other's size of its centre; where t is below a half,
    within (1 - t) / 2t times. Along x such boxes are a stretch of a sorted list.
    """

    def __init__(self, boxes_xyxy: np.ndarray, group: np.ndarray, iou_threshold: float) -> None:
        self.boxes_xyxy, self.group, self.iou_threshold = boxes_xyxy, group << 32, iou_threshold
        self.left = float(boxes_xyxy[:, 0].min(initial=np.inf))
        self.right = float(boxes_xyxy[:, 2].max(initial=-np.inf))

    def place(self, rows: np.ndarray) -> _Placed:
        """Lay out rows."""
        # A column after the other: NumPy takes ten times as long for columns of two.
        columns = self.boxes_xyxy.take(rows, axis=0).T
        left, top, right, bottom = columns.astype(np.float64, order="C")
        width, x, reach = right - left, (left + right) / 2, np.inf
        if self.iou_threshold > 0:
            part = (1 - self.iou_threshold) / min(1.0, 2 * self.iou_threshold)
            reach = width * (part * (1 + ROUNDING))
        group = self.group.take(rows)
        place, first, last = (group + self._step_of(at) for at in (x, x - reach, x + reach))
        # One step more, for what the computation rounds.
        placed = _Placed(
            rows, place, first - 1, last + 1, left, top, right, bottom, width * (bottom - top)
        )
        return placed.take(np.argsort(place))

    def _step_of(self, x: np.ndarray) -> np.ndarray:
        width = self.right - self.left
        scale = STEPS / width if width > 0 else 0.0
        return ((x.clip(self.left, self.right) - self.left) * scale).astype(np.int64)

    def purged(self, rows: _Placed, kept: _Placed) -> _Placed:
        """Return the rows that overlap none of the kept ones.

        Where many kept ones lie beside a row, the best of them come first. They remove most rows,
        and the others are compared with what is left.
        """
        start = np.searchsorted(kept.place, rows.first)
        counts = np.searchsorted(kept.place, rows.last, side="right") - start
        if counts.sum() <= max(PAIRS, CROWD * len(counts)):
            return self._purged_of(rows, kept, start, counts)
        if len(counts) > LAST_STAGE:
            firsts = range(0, len(counts), LAST_STAGE)
            parts = [rows.part(first, first + LAST_STAGE) for first in firsts]
            return _chain(*[self.purged(part, kept) for part in parts])
        beside = kept.part(start.min(), (start + counts).max())
        better, worse = beside.divided(max(CROWD, len(beside.row) // 4))
        return self.purged(self.purged(rows, better), worse)

    def _purged_of(
        self, rows: _Placed, kept: _Placed, start: np.ndarray, counts: np.ndarray
    ) -> _Placed:
        """Return the rows that overlap none of the kept ones beside them, (N,) each from start."""
        stays = np.ones(len(counts), bool)
        for part in np.split(np.arange(len(counts)), _cuts(counts)):
            position = np.repeat(part, counts[part])
            other = _ranges(start[part], counts[part])
            stays[position[self._overlap(rows, position, kept, other)]] = False
        return rows.take(np.flatnonzero(stays))

    def without_worse(self, rows: _Placed) -> _Placed:
        """Return the rows that stay, as if no other row came before them.

        Of rows with too many pairs the better half is decided first: where boxes lie in heaps, it
        removes most of the others before these are compared. The first images count as better here,
        which changes nothing, since their boxes meet no others.
        """
        after = np.searchsorted(rows.place, rows.last, side="right")
        counts = after - np.arange(1, len(after) + 1)
        if counts.sum() <= PAIRS:
            return self._decided(rows, counts)
        better, worse = rows.divided(len(counts) // 2)
        better = self.without_worse(better)
        worse = self.without_worse(self.purged(worse, better))
        return _join(better, worse)

    def _decided(self, rows: _Placed, counts: np.ndarray) -> _Placed:
        """Return the rows that stay, of which each is compared with so many after it.

        Each round lets those that seem to stay remove others. What a row's better ones do is
        settled a round before its own fate, so the rounds end.
        """
        row = np.arange(len(counts))
        one, other = np.repeat(row, counts), _ranges(row + 1, counts)
        overlap = self._overlap(rows, one, rows, other)
        one, other = one[overlap], other[overlap]
        is_better = rows.row[one] < rows.row[other]
        better, worse = np.where(is_better, one, other), np.where(is_better, other, one)
        stays = np.ones(len(rows.row), bool)
        while True:
            before, stays = stays, np.ones(len(rows.row), bool)
            stays[worse[before[better]]] = False
            if (stays == before).all():
                return rows.take(np.flatnonzero(stays))

    def _overlap(
        self, rows: _Placed, one: np.ndarray, others: _Placed, other: np.ndarray
    ) -> np.ndarray:
        """Return which pairs have an IoU above the threshold, (Q,) int64."""
        right = np.minimum(rows.right.take(one), others.right.take(other))
        width = right - np.maximum(rows.left.take(one), others.left.take(other))
        bottom = np.minimum(rows.bottom.take(one), others.bottom.take(other))
        height = bottom - np.maximum(rows.top.take(one), others.top.take(other))
        # One of them may stay negative: then so is the IoU.
        intersection = width.clip(0) * height
        union = rows.area.take(one) + others.area.take(other) - intersection
        return np.flatnonzero(intersection / union > self.iou_threshold)
