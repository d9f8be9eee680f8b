"""Merge the detections of overlapping views of an image."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from duet.utils.evaluation.nms import SuppressionSettings, suppress_overlapping
from duet.utils.geometry.detections import Detections

AGREEMENT = 0.5  # IoU; from 0.3 to 0.7, mAP differs by less than 0.01
# A box cut by a border ends within about half a cell of the finest map from it: 4 px of 640.
NEAR_BORDER = 4 / 640  # relative to the long side of the view
OUTWARD = np.array([-1, -1, 1, 1], np.float32)  # signs for left, top, right, bottom


class _Pieces(NamedTuple):
    boxes_xyxy: np.ndarray  # (K, 4) float32, pixels of the image
    group: np.ndarray  # (K,) int64: pieces in different groups are different objects
    view: np.ndarray  # (K,) int64, ascending
    is_cut: np.ndarray  # (K, 4) bool: the view cuts the box's left, top, right, bottom


def join_views(
    found: Sequence[Detections], regions_xyxy: np.ndarray, settings: SuppressionSettings
) -> Detections:
    """Return each object of an image once, with its whole box.

    A box is cut where it ends at a border of its view inside the image. A box in another view
    continues it if the two agree in the overlap of the views (IoU of at least AGREEMENT there) and
    the other box extends beyond the cutting border. Then

    1. a cut box is dropped if an uncut box continues it, since that view shows more;
    2. cut boxes that continue each other are merged into their bounding box with the best score;
    3. NMS, with the order and ties of `non_max_suppression`, selects among the remaining boxes.

    A cut box without continuation is kept unchanged.

    Args:
        found: detections per view after NMS, in pixels of the view and clipped to it.
        regions_xyxy: (V, 4) positions of the views, which cover the image.

    Merging by overlap instead of dropping cut boxes follows Akyon et al. 2022, arXiv:2202.06934,
    who compare whole boxes; two parts of one object in neighbouring tiles may overlap little.
    """
    regions = regions_xyxy.astype(np.float32)
    view = np.repeat(np.arange(len(found)), [len(detections.scores) for detections in found])
    everything = Detections(*(np.concatenate(field) for field in zip(*found, strict=True)))
    boxes_xyxy = everything.boxes_xyxy + np.tile(regions[view, :2], 2)
    class_index = everything.class_index
    group = np.zeros_like(class_index) if settings.class_agnostic else class_index
    pieces = _Pieces(boxes_xyxy, group, view, _cut_sides(boxes_xyxy, regions, view))
    joined = _joined(everything._replace(boxes_xyxy=boxes_xyxy), *_continued(pieces, regions))
    return suppress_overlapping(joined, settings)


def _cut_sides(boxes_xyxy: np.ndarray, regions: np.ndarray, view: np.ndarray) -> np.ndarray:
    """Return (K, 4) bool: which sides of boxes end at a border inside the image."""
    image = np.concatenate((regions[:, :2].min(axis=0), regions[:, 2:].max(axis=0)))
    long_sides = (regions[:, 2:] - regions[:, :2]).max(axis=1)
    near = np.abs(regions[view] - boxes_xyxy) <= NEAR_BORDER * long_sides[view, None]
    return near & (regions != image)[view]


def _continued(pieces: _Pieces, regions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the continuations of cut boxes.

    Returns:
        (K,) bool: cut boxes continued by an uncut box.
        (P,) and (P,) int64: pairs of other cut boxes; the second continues the first.
    """
    is_cut = np.logical_or.reduce(pieces.is_cut, axis=1)
    pairs = [np.zeros((2, 0), np.int64), *_pairs(pieces, regions, np.flatnonzero(is_cut))]
    cut, more = np.concatenate(pairs, axis=1)
    shown_whole = np.zeros(len(is_cut), bool)
    shown_whole[cut[~is_cut[more]]] = True
    both_left = is_cut[more] & ~shown_whole[cut] & ~shown_whole[more]
    return shown_whole, cut[both_left], more[both_left]


def _pairs(pieces: _Pieces, regions: np.ndarray, cut: np.ndarray) -> Iterator[np.ndarray]:
    """Yield (2, N) int64 per pair of views: cut boxes and their continuations."""
    starts = np.searchsorted(pieces.view, np.arange(len(regions) + 1))
    for index in np.unique(pieces.view[cut]).tolist():
        own = cut[pieces.view[cut] == index]
        for other in _meeting(regions[index], regions).tolist():
            common = _intersection(regions[index], regions[other])
            rows = np.arange(starts[other], starts[other + 1])
            rows = rows[_meeting(common, pieces.boxes_xyxy[rows])]
            if other != index and len(rows):
                yield _pairs_of_views(pieces, own, rows, regions[index], common)


def _pairs_of_views(
    pieces: _Pieces, cut: np.ndarray, others: np.ndarray, region: np.ndarray, common: np.ndarray
) -> np.ndarray:
    """Return (2, N) int64: cut boxes of a region's view, and boxes that continue them.

    common: (4,) overlap with the other view.
    """
    beyond = (pieces.boxes_xyxy[others] - region) * OUTWARD > 0
    goes_on = (pieces.is_cut[cut, None] & beyond).any(axis=2)
    goes_on &= pieces.group[cut, None] == pieces.group[others]
    place, other_place = np.nonzero(goes_on)
    pairs = np.stack((cut[place], others[other_place]))
    seen, seen_there = _intersection(pieces.boxes_xyxy[pairs], common)
    shared = _area(_intersection(seen, seen_there))
    union = _area(seen) + _area(seen_there) - shared
    return pairs[:, (shared > 0) & (shared >= AGREEMENT * union)]


def _meeting(box_xyxy: np.ndarray, boxes_xyxy: np.ndarray) -> np.ndarray:
    """Return the rows of boxes (N, 4) that overlap a box (4,)."""
    return np.flatnonzero(_area(_intersection(box_xyxy, boxes_xyxy)) > 0)


def _intersection(boxes_a_xyxy: np.ndarray, boxes_b_xyxy: np.ndarray) -> np.ndarray:
    """Return the intersection of boxes (..., 4), inverted if they are disjoint."""
    corners = (
        np.maximum(boxes_a_xyxy[..., :2], boxes_b_xyxy[..., :2]),
        np.minimum(boxes_a_xyxy[..., 2:], boxes_b_xyxy[..., 2:]),
    )
    return np.concatenate(corners, axis=-1)


def _area(boxes_xyxy: np.ndarray) -> np.ndarray:
    """Return the area of boxes (..., 4); 0 if inverted."""
    width, height = np.moveaxis(boxes_xyxy[..., 2:] - boxes_xyxy[..., :2], -1, 0)
    return np.maximum(width, 0) * np.maximum(height, 0)


def _joined(
    everything: Detections, left_out: np.ndarray, cut: np.ndarray, more: np.ndarray
) -> Detections:
    """Return the detections with each chain of pairs merged at the position of its first piece."""
    first = _first_of_chain(len(left_out), cut, more)
    boxes_xyxy = everything.boxes_xyxy.copy()
    for corner, furthest in ((slice(0, 2), np.minimum), (slice(2, 4), np.maximum)):
        furthest.at(boxes_xyxy[:, corner], first, everything.boxes_xyxy[:, corner])
    worst_first = np.argsort(-everything.scores, kind="stable")[::-1]
    best = np.arange(len(first))
    best[first[worst_first]] = worst_first  # the last assignment to a row wins
    joined = everything.take(best)._replace(boxes_xyxy=boxes_xyxy)
    return joined.take(np.flatnonzero(~left_out & (first == np.arange(len(first)))))


def _first_of_chain(num_pieces: int, cut: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Return (K,) int64: the first row connected to each row through pairs."""
    first = np.arange(num_pieces)
    while True:
        before = first
        first = before.copy()
        np.minimum.at(first, cut, before[more])
        np.minimum.at(first, more, before[cut])
        first = first[first]  # doubles the reach
        if np.array_equal(first, before):
            return first
