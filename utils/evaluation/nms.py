"""Non-maximum suppression (NMS): of predictions that overlap, the best stay.

Exact, and without a time limit: the result depends only on the predictions. It runs in NumPy on the
host: reading a tensor waits for all that a framework has queued. Images are processed together,
because a call of NumPy takes longer than the few boxes of one image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duet.utils.boxes import cxcywh_to_xyxy
from duet.utils.detections import Detections
from duet.utils.detections import SuppressionSettings as SuppressionSettings

MAX_CANDIDATES = 30000  # of an image; only the best take part
STAGE = 256  # rows of an image that are decided together; most of the next are removed by them
PAIRS = 2**14  # of boxes compared with kept ones at once: bounds the memory
ROUNDING = 1e-6  # more than a bound is wrong by, as a fraction of it
STEPS = 2**31  # into which the width of the scene is divided, to look for boxes beside a box


def non_max_suppression(decoded: np.ndarray, settings: SuppressionSettings) -> Detections:
    """Return the best predictions of one image; none overlaps a better one of its class.

    Predictions of equal score keep the order of their rows, then of their classes.

    Args:
        decoded: (N, 5 + C) float32: cx, cy, w, h in pixels, objectness and class scores in [0, 1].

    Returns:
        Detections in the frame of decoded, K <= settings.max_detections; K = 0 when nothing is
        found.
    """
    return best_rows(decoded, settings)[0]


def best_rows(decoded: np.ndarray, settings: SuppressionSettings) -> tuple[Detections, np.ndarray]:
    """Return what `non_max_suppression` does, and the row of decoded of each, (K,) int64."""
    (best,) = best_rows_of_images([decoded], settings)
    return best


def best_rows_of_images(
    images: Sequence[np.ndarray], settings: SuppressionSettings
) -> list[tuple[Detections, np.ndarray]]:
    """Return what `best_rows` does of each image, in less time than one after the other."""
    assert settings.confidence_threshold >= 0
    candidates = [_candidates(decoded, settings) for decoded in images]
    kept = _survivors([found for found, _ in candidates], settings)
    return [
        (found.take(index), row[index])
        for (found, row), index in zip(candidates, kept, strict=True)
    ]


def suppress_overlapping(found: Detections, settings: SuppressionSettings) -> Detections:
    """Return the best of what is found in an image, as `non_max_suppression` chooses.

    Equal scores keep their order.
    """
    (kept,) = _survivors([found], settings)
    return found.take(kept)


def _survivors(images: Sequence[Detections], settings: SuppressionSettings) -> list[np.ndarray]:
    """Return which of each image `suppress_overlapping` keeps, (K,) int64, best first."""
    orders = [_descending(found.scores)[:MAX_CANDIDATES] for found in images]
    lengths = [len(order) for order in orders]
    boxes: list[np.ndarray] = [np.zeros((0, 4), np.float32)]
    groups: list[np.ndarray] = [np.zeros(0, np.int64)]
    for found, order in zip(images, orders, strict=True):
        boxes.append(found.boxes_xyxy.take(order, axis=0))
        groups.append(found.class_index.take(order))
    group = np.concatenate(groups)
    if settings.class_agnostic:
        group = np.zeros_like(group)
    threshold, most = float(np.float32(settings.iou_threshold)), settings.max_detections
    kept = suppress_greedily(np.concatenate(boxes), group, threshold, most, lengths)
    ends = np.cumsum(lengths, dtype=np.int64)
    of_images = np.split(kept, np.searchsorted(kept, ends))
    firsts = ends - lengths
    return [
        order[index - first] for order, index, first in zip(orders, of_images, firsts, strict=False)
    ]


def _candidates(
    decoded: np.ndarray, settings: SuppressionSettings
) -> tuple[Detections, np.ndarray]:
    """Return every prediction above the threshold, by row and then by class, and its row."""
    # Half precision would place boxes on a grid of half pixels and tie their scores.
    assert decoded.dtype == np.float32, f"decoded is {decoded.dtype}: cast the raw maps to float32"
    # No class score exceeds 1, so an objectness below the threshold already decides.
    above = np.flatnonzero(decoded[:, 4] > settings.confidence_threshold)
    if len(above) < len(decoded):  # else a copy of many columns is saved
        decoded = decoded[above]
    boxes_xyxy = cxcywh_to_xyxy(decoded[:, :4])
    scores = decoded[:, 5:] * decoded[:, 4:5]
    num_classes = scores.shape[1]
    if settings.multi_label:
        position = np.flatnonzero(scores > settings.confidence_threshold)
    else:
        best = np.arange(len(scores)) * num_classes + scores.argmax(axis=1)
        position = best[scores.ravel()[best] > settings.confidence_threshold]
    row, class_index = np.divmod(position, num_classes)
    if settings.classes is not None:
        wanted = np.flatnonzero(np.isin(class_index, settings.classes))
        position, row, class_index = position[wanted], row[wanted], class_index[wanted]
    found = Detections(boxes_xyxy.take(row, axis=0), scores.ravel()[position], class_index)
    return found, above[row]


def _descending(scores: np.ndarray) -> np.ndarray:
    """Return (N,) int64 indices that sort scores from 0 up: highest first, ties by index."""
    # The bits of a positive float32 rise with its value. Packed with the index they are unique, so
    # a plain sort is stable: 0.3 ms for 60,000 scores where a stable argsort takes 4 ms.
    bits = (~scores.view(np.uint32)).astype(np.uint64) << np.uint64(32)
    packed = np.sort(bits | np.arange(len(scores), dtype=np.uint64))
    return (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)


def suppress_greedily(
    boxes_xyxy: np.ndarray,
    group: np.ndarray,
    iou_threshold: float,
    max_kept: int,
    lengths: Sequence[int],
) -> np.ndarray:
    """Return the rows that remain when each kept box removes the later ones that it overlaps.

    Args:
        boxes_xyxy: (N, 4) float32, best first. One without area, not finite or with right < left or
            bottom < top overlaps nothing.
        group: (N,) int64; boxes of different groups never meet.
        iou_threshold: a box is removed when its IoU with a kept one is above this. IoU is in
            float64; boxes that only touch have 0.
        max_kept: the search in an image ends when this many are kept.
        lengths: how many rows each image has, one image after the other.

    Returns:
        (K,) int64, ascending.
    """
    counts = np.array(lengths, np.int64)
    image = np.repeat(np.arange(len(counts)), counts)
    group = group - group.min(initial=0)
    group = image * (group.max(initial=0) + 1) + group
    has_area = _has_area(boxes_xyxy)
    rows, is_kept = np.flatnonzero(has_area), ~has_area
    boxes = _lay_out(boxes_xyxy.take(rows, axis=0), group.take(rows), iou_threshold)
    found = _search(boxes, iou_threshold, image.take(rows), len(counts), max_kept)
    is_kept[rows[found]] = True
    row = np.flatnonzero(is_kept)
    num_kept = np.bincount(image[row], minlength=len(counts))
    return row[_ranges(np.zeros_like(num_kept), num_kept) < max_kept]


def _has_area(boxes_xyxy: np.ndarray) -> np.ndarray:
    """Return (N,) bool: whether a box is finite, with left < right and top < bottom."""
    left, top, right, bottom = np.ascontiguousarray(boxes_xyxy.T)
    # What lies between finite edges is finite; a comparison with NaN is false.
    is_finite = (left > -np.inf) & (top > -np.inf) & (right < np.inf) & (bottom < np.inf)
    return is_finite & (left < right) & (top < bottom)


class _Boxes(NamedTuple):
    """Boxes (K,), sorted by position to search for their neighbours."""

    row: np.ndarray  # int64, best first
    place: np.ndarray  # int64: the group, and the centre along x
    first: np.ndarray  # int64: places of what can overlap it enough
    last: np.ndarray
    left: np.ndarray  # float64, as those that follow
    top: np.ndarray
    right: np.ndarray
    bottom: np.ndarray
    area: np.ndarray

    def take(self, index: np.ndarray) -> _Boxes:
        return _Boxes(*(field.take(index) for field in self))

    def join(self, other: _Boxes) -> _Boxes:
        both = _Boxes(*map(np.concatenate, zip(self, other, strict=True)))
        return both.take(np.argsort(both.place, kind="stable"))


def _lay_out(boxes_xyxy: np.ndarray, group: np.ndarray, iou_threshold: float) -> _Boxes:
    """Return boxes (N, 4) in their order, ready for searches for overlaps within a group.

    An IoU above t needs a common width above t times that of either box. So along each axis the
    centre of one lies within (1 - t) times the other's size of its centre; where t is below a half,
    within (1 - t) / 2t times. Along x such boxes are a stretch of a sorted list.
    """
    # A column after the other: NumPy takes ten times as long for columns of two.
    left, top, right, bottom = (side.astype(np.float64) for side in boxes_xyxy.T)
    low, high = float(left.min(initial=np.inf)), float(right.max(initial=-np.inf))
    scale = STEPS / (high - low) if high > low else 0.0
    width, x = right - left, (left + right) / 2
    reach = np.full_like(width, np.inf)
    if iou_threshold > 0:
        part = (1 - iou_threshold) / min(1.0, 2 * iou_threshold)
        reach = width * (part * (1 + ROUNDING))
    place, first, last = (
        (group << 32) + ((at.clip(low, high) - low) * scale).astype(np.int64)
        for at in (x, x - reach, x + reach)
    )
    # One step more, for what the computation rounds.
    sides, area = (left, top, right, bottom), width * (bottom - top)
    return _Boxes(np.arange(len(x)), place, first - 1, last + 1, *sides, area)


def _search(
    boxes: _Boxes, iou_threshold: float, image: np.ndarray, num_images: int, max_kept: int
) -> np.ndarray:
    """Return the rows that remain, until each image has max_kept or a few more."""
    kept, num_kept = boxes.take(np.zeros(0, np.int64)), np.zeros(num_images, np.int64)
    counts = np.bincount(image, minlength=num_images)
    first = np.cumsum(counts) - counts
    for done in range(0, int(counts.max(initial=0)), STAGE):
        rows = _ranges(first + done, (counts - done).clip(0, STAGE))
        rows = rows[num_kept[image[rows]] < max_kept]
        if len(rows) == 0:
            break
        rows = rows[np.argsort(boxes.place[rows])]
        found = _without_worse(_purged(boxes.take(rows), kept, iou_threshold), iou_threshold)
        kept = kept.join(found)
        num_kept += np.bincount(image[found.row], minlength=num_images)
    return kept.row


def _ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return (first[0], first[0] + 1, ...), so many numbers of each."""
    before = np.cumsum(counts) - counts
    return np.repeat(first - before, counts) + np.arange(counts.sum())


def _purged(rows: _Boxes, kept: _Boxes, iou_threshold: float) -> _Boxes:
    """Return the rows that overlap none of the kept ones, of those beside them."""
    start = np.searchsorted(kept.place, rows.first)
    counts = np.searchsorted(kept.place, rows.last, side="right") - start
    stays = np.ones(len(counts), bool)
    cuts = np.flatnonzero(np.diff(np.cumsum(counts) // PAIRS)) + 1
    for part in np.split(np.arange(len(counts)), cuts):
        position = np.repeat(part, counts[part])
        other = _ranges(start[part], counts[part])
        stays[position[_overlap(rows, position, kept, other, iou_threshold)]] = False
    return rows.take(np.flatnonzero(stays))


def _without_worse(rows: _Boxes, iou_threshold: float) -> _Boxes:
    """Return the rows that stay, as if no other row came before them."""
    after = np.searchsorted(rows.place, rows.last, side="right")
    counts = after - np.arange(1, len(after) + 1)
    row = np.arange(len(counts))
    one, other = np.repeat(row, counts), _ranges(row + 1, counts)
    overlap = _overlap(rows, one, rows, other, iou_threshold)
    one, other = one[overlap], other[overlap]
    is_better = rows.row[one] < rows.row[other]
    better, worse = np.where(is_better, one, other), np.where(is_better, other, one)
    # Each round lets those that seem to stay remove others. What a row's better ones do is settled
    # a round before its own fate, so the rounds end.
    stays = np.ones(len(counts), bool)
    while True:
        before, stays = stays, np.ones(len(counts), bool)
        stays[worse[before[better]]] = False
        if (stays == before).all():
            return rows.take(np.flatnonzero(stays))


def _overlap(
    rows: _Boxes, one: np.ndarray, others: _Boxes, other: np.ndarray, iou_threshold: float
) -> np.ndarray:
    """Return which pairs have an IoU above the threshold, (Q,) int64."""
    right = np.minimum(rows.right.take(one), others.right.take(other))
    width = right - np.maximum(rows.left.take(one), others.left.take(other))
    bottom = np.minimum(rows.bottom.take(one), others.bottom.take(other))
    height = bottom - np.maximum(rows.top.take(one), others.top.take(other))
    # One of them may stay negative: then so is the IoU.
    intersection = width.clip(0) * height
    union = rows.area.take(one) + others.area.take(other) - intersection
    return np.flatnonzero(intersection / union > iou_threshold)
