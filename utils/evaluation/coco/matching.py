"""Match detections to objects by COCO's rules.

Source: Lin et al. 2014, arXiv:1405.0312, and the rules of https://cocodataset.org/#detection-eval.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from duet.utils.data.masks import runs
from duet.utils.geometry.boxes import pairwise_iou
from duet.utils.geometry.detections import Detections, FoundObjects, GroundTruth, Segmentations

IOU_THRESHOLDS = np.linspace(0.50, 0.95, 10)
MAX_DETECTIONS_PER_CLASS = 100


class SizeRange(NamedTuple):
    """Range of areas, including both ends, as in pycocotools."""

    smallest: float  # square pixels
    largest: float

    def excludes(self, area: np.ndarray) -> np.ndarray:
        return (area < self.smallest) | (area > self.largest)


SIZE_RANGES = {
    "all": SizeRange(0, 1e10),
    "small": SizeRange(0, 32**2),
    "medium": SizeRange(32**2, 96**2),
    "large": SizeRange(96**2, 1e10),
}


class Overlap(NamedTuple):
    """Functions that compare objects by box or mask.

    Attributes:
        area: maps detections or labels to (K,) float64, square pixels.
        iou: maps both, and (M,) bool is_crowd, to (K, M) float64, for pairs of the same class; for
            crowds, the covered fraction of the detection.
    """

    area: Callable[[Any], np.ndarray]
    iou: Callable[[Any, GroundTruth, np.ndarray], np.ndarray]  # detections, objects, is_crowd


def _box_area(objects: FoundObjects | GroundTruth) -> np.ndarray:
    size = objects.boxes_xyxy[:, 2:].astype(np.float64) - objects.boxes_xyxy[:, :2]
    return size[:, 0] * size[:, 1]


def _box_iou(found: FoundObjects, truth: GroundTruth, is_crowd: np.ndarray) -> np.ndarray:
    return pairwise_iou(found.boxes_xyxy, truth.boxes_xyxy, is_crowd)


def _mask_area(objects: Any) -> np.ndarray:
    return runs.areas(objects.masks)


def _mask_iou(found: Segmentations, truth: GroundTruth, is_crowd: np.ndarray) -> np.ndarray:
    assert truth.masks is not None, "objects without masks"
    iou = np.zeros((len(found.scores), len(is_crowd)))
    for label in np.intersect1d(found.class_index, truth.class_index).tolist():
        row = np.flatnonzero(found.class_index == label)
        column = np.flatnonzero(truth.class_index == label)
        of_class = runs.iou(found.masks.take(row), truth.masks.take(column), is_crowd[column])
        iou[np.ix_(row, column)] = of_class
    return iou


BOXES, MASKS = Overlap(_box_area, _box_iou), Overlap(_mask_area, _mask_iou)


class MatchCandidates(NamedTuple):
    """Ranked detections (D,), objects (M,) and pairs (P,) that could match."""

    scores: np.ndarray  # (D,) float32
    class_index: np.ndarray  # (D,) int64
    rank: np.ndarray  # (D,) int64, rank by score within image and class
    area: np.ndarray  # (D,) float64
    object_class_index: np.ndarray  # (M,) int64
    object_area: np.ndarray  # (M,) float64
    object_is_crowd: np.ndarray  # (M,) bool
    pair_detection: np.ndarray  # (P,) int64, index into (D,)
    pair_object: np.ndarray  # (P,) int64, index into (M,)
    pair_iou: np.ndarray  # (P,) float64, at least the lowest threshold


class Matches(NamedTuple):
    """Outcome of each detection, row per IOU_THRESHOLDS.

    A detection is ignored if it matches a crowd or an object outside the size range, or if it
    matches nothing and is outside the range itself.
    """

    correct: np.ndarray  # (10, D) bool, true positive
    counted: np.ndarray  # (10, D) bool, true or false positive


def find_candidates(
    found: FoundObjects, ground_truth: GroundTruth, overlap: Overlap = BOXES
) -> MatchCandidates:
    """Sort one image's detections by class and descending score, and find overlapping objects.

    As in pycocotools, the best 100 per class are used and equal scores keep their order.

    Args:
        found: `Detections`, or other objects with scores, classes, and the input of overlap.
    """
    order = np.lexsort((-found.scores, found.class_index))
    rank = position_in_run(found.class_index[order])
    order, rank = order[rank < MAX_DETECTIONS_PER_CLASS], rank[rank < MAX_DETECTIONS_PER_CLASS]
    best = found.take(order)
    is_crowd, object_area = ground_truth.is_crowd, ground_truth.area
    if is_crowd is None:
        is_crowd = np.zeros(len(ground_truth.class_index), dtype=bool)
    if object_area is None:
        object_area = overlap.area(ground_truth)
    iou = overlap.iou(best, ground_truth, is_crowd)
    same_class = best.class_index[:, None] == ground_truth.class_index
    pair_detection, pair_object = np.nonzero(same_class & (iou >= IOU_THRESHOLDS[0]))
    return MatchCandidates(
        best.scores,
        best.class_index,
        rank,
        overlap.area(best),
        ground_truth.class_index,
        object_area,
        is_crowd,
        pair_detection,
        pair_object,
        pair_iou=iou[pair_detection, pair_object],
    )


def join_images(images: Sequence[MatchCandidates]) -> MatchCandidates:
    """Join the candidates of any number of images, in order."""
    nothing, no_boxes = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    none = Detections(no_boxes, np.zeros(0, np.float32), nothing)
    images = [find_candidates(none, GroundTruth(nothing, no_boxes)), *images]
    shifted, detections, objects = [], 0, 0
    for image in images:
        pairs = image.pair_detection + detections, image.pair_object + objects
        shifted.append(image._replace(pair_detection=pairs[0], pair_object=pairs[1]))
        detections += len(image.scores)
        objects += len(image.object_class_index)
    return MatchCandidates(*(np.concatenate(field) for field in zip(*shifted, strict=True)))


def by_class_and_score(candidates: MatchCandidates) -> MatchCandidates:
    """Sort detections by class and descending score (stable), and pairs by the detection's rank,
    then by detection, IoU and object.
    """
    order = np.lexsort((-candidates.scores, candidates.class_index))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    detection, target = place[candidates.pair_detection], candidates.pair_object
    rank = candidates.rank[candidates.pair_detection]
    pairs = np.lexsort((target, candidates.pair_iou, detection, rank))
    return candidates._replace(
        scores=candidates.scores[order],
        class_index=candidates.class_index[order],
        rank=candidates.rank[order],
        area=candidates.area[order],
        pair_detection=detection[pairs],
        pair_object=target[pairs],
        pair_iou=candidates.pair_iou[pairs],
    )


def ignored_objects(candidates: MatchCandidates, size: SizeRange) -> np.ndarray:
    """Return (M,) bool: crowds and objects outside the range, which need not be detected."""
    return candidates.object_is_crowd | size.excludes(candidates.object_area)


def match_greedily(candidates: MatchCandidates, size: SizeRange) -> Matches:
    """Match detections to objects of a size range, separately at each IoU threshold.

    In every image and class, detections choose in descending score. Each takes the free object with
    the highest IoU, the later one in a tie, if the IoU reaches the threshold. Ignored objects are
    taken only if there is no other, and crowds always stay free. All images and classes are
    processed together, one rank at a time.

    Args:
        candidates: sorted by `by_class_and_score`.
    """
    ignored = ignored_objects(candidates, size)
    detection, target = candidates.pair_detection, candidates.pair_object
    run = np.cumsum(np.diff(detection, prepend=detection[:1]) != 0)
    order = np.argsort(2 * run + ~ignored[target], kind="stable")  # per detection, ignored first
    detection, target, iou = detection[order], target[order], candidates.pair_iou[order]
    reaches = iou >= IOU_THRESHOLDS[:, None]
    correct = np.zeros((len(IOU_THRESHOLDS), len(candidates.scores)), dtype=bool)
    counted = np.tile(~size.excludes(candidates.area), (len(IOU_THRESHOLDS), 1))
    taken = np.zeros((len(IOU_THRESHOLDS), len(ignored)), dtype=bool)
    for pairs in _runs(candidates.rank[detection]):
        free = reaches[:, pairs] & ~taken[:, target[pairs]]
        threshold, pair = _last_true_of_each_run(free, detection[pairs])
        finder, found = detection[pairs][pair], target[pairs][pair]
        correct[threshold, finder] = counted[threshold, finder] = ~ignored[found]
        taken[threshold, found] = ~candidates.object_is_crowd[found]
    return Matches(correct, counted)


def position_in_run(values: np.ndarray) -> np.ndarray:
    """Return (N,) int64: each value's position in its run of equal values."""
    position = np.arange(len(values))
    return position - np.maximum.accumulate(position * _starts_run(values))


def _starts_run(values: np.ndarray) -> np.ndarray:
    """Return (N,) bool: whether each value starts a run."""
    starts = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return starts


def _runs(values: np.ndarray) -> list[slice]:
    bounds = [*np.flatnonzero(_starts_run(values)).tolist(), len(values)]
    return [slice(start, end) for start, end in zip(bounds, bounds[1:], strict=False)]


def _last_true_of_each_run(flags: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (row, column) of the last True of flags (T, P) in each row and run of values (P,)."""
    column = np.where(flags, np.arange(len(values)), -1)
    last = np.maximum.reduceat(column, np.flatnonzero(_starts_run(values)), axis=1)
    row, run = np.nonzero(last >= 0)
    return row, last[row, run]
