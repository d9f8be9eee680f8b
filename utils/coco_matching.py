"""Which detection finds which object, to COCO's rules: nms.py before, average precision after.

Source: Lin et al. 2014, arXiv:1405.0312, and the rules of https://cocodataset.org/#detection-eval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from utils.boxes import pairwise_iou
from utils.nms import Detections

IOU_THRESHOLDS = np.linspace(0.50, 0.95, 10)
MAX_DETECTIONS_PER_CLASS = 100


class GroundTruth(NamedTuple):
    """The objects labelled in one image."""

    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float, pixels of the frame that the detections are in


class MatchCandidates(NamedTuple):
    """Ranked detections (D,), objects (M,) and the pairs (P,) of them that could match."""

    scores: np.ndarray  # (D,) float32
    class_index: np.ndarray  # (D,) int64
    rank: np.ndarray  # (D,) int64, place by score within the image and class
    object_class_index: np.ndarray  # (M,) int64
    pair_detection: np.ndarray  # (P,) int64, index into (D,)
    pair_object: np.ndarray  # (P,) int64, index into (M,)
    pair_iou: np.ndarray  # (P,) float64, at least the lowest threshold


def find_candidates(detections: Detections, ground_truth: GroundTruth) -> MatchCandidates:
    """One image's detections by class and descending score, and their overlaps with its objects.

    As pycocotools does it, the best 100 of each class take part and equal scores keep their order.
    """
    order = np.lexsort((-detections.scores, detections.class_index))
    rank = position_in_run(detections.class_index[order])
    order, rank = order[rank < MAX_DETECTIONS_PER_CLASS], rank[rank < MAX_DETECTIONS_PER_CLASS]
    boxes_xyxy, scores, class_index = detections.take(order)
    iou = pairwise_iou(boxes_xyxy, ground_truth.boxes_xyxy)
    same_class = class_index[:, None] == ground_truth.class_index
    pair_detection, pair_object = np.nonzero(same_class & (iou >= IOU_THRESHOLDS[0]))
    pair_iou = iou[pair_detection, pair_object]
    return MatchCandidates(
        scores, class_index, rank, ground_truth.class_index, pair_detection, pair_object, pair_iou
    )


def join_images(images: Sequence[MatchCandidates]) -> MatchCandidates:
    """The candidates of several images, or of none, as one, in the order of the images."""
    images = [_no_candidates(), *images]
    detections_before = _counts_before([len(image.scores) for image in images])
    objects_before = _counts_before([len(image.object_class_index) for image in images])
    shifted = [
        image._replace(
            pair_detection=image.pair_detection + detection_offset,
            pair_object=image.pair_object + object_offset,
        )
        for image, detection_offset, object_offset in zip(
            images, detections_before, objects_before, strict=True
        )
    ]
    return MatchCandidates(*(np.concatenate(field) for field in zip(*shifted, strict=True)))


def match_greedily(candidates: MatchCandidates) -> np.ndarray:
    """Which detections find an object, at each IoU threshold by itself.

    In every image and class the detections choose in descending score: each takes the free object
    that it overlaps most, the later object where two are equal, provided the IoU reaches the
    threshold. All images and classes proceed together, one rank at a time.

    Returns:
        (10, D) bool, row per IOU_THRESHOLDS.
    """
    detection, target = candidates.pair_detection, candidates.pair_object
    rank, iou = candidates.rank[detection], candidates.pair_iou
    order = np.lexsort((target, iou, detection, rank))
    detection, target, iou = detection[order], target[order], iou[order]
    reaches = iou >= IOU_THRESHOLDS[:, None]
    matched = np.zeros((len(IOU_THRESHOLDS), len(candidates.scores)), dtype=bool)
    taken = np.zeros((len(IOU_THRESHOLDS), len(candidates.object_class_index)), dtype=bool)
    for pairs in _runs(rank[order]):
        free = reaches[:, pairs] & ~taken[:, target[pairs]]
        threshold, pair = _last_true_of_each_run(free, detection[pairs])
        matched[threshold, detection[pairs][pair]] = True
        taken[threshold, target[pairs][pair]] = True
    return matched


def position_in_run(values: np.ndarray) -> np.ndarray:
    """(N,) int64: how many equal values directly precede each value."""
    starts = _run_starts(values)
    lengths = np.diff(starts, append=len(values))
    return np.arange(len(values)) - np.repeat(starts, lengths)


def _run_starts(values: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.diff(values, prepend=values[:1] - 1))


def _runs(values: np.ndarray) -> list[slice]:
    """The stretches of equal values, in order."""
    bounds = [*_run_starts(values).tolist(), len(values)]
    return [slice(start, end) for start, end in zip(bounds, bounds[1:], strict=False)]


def _last_true_of_each_run(flags: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of the last True of each row of flags (T, P) in each run of values (P,)."""
    column = np.where(flags, np.arange(len(values)), -1)
    last = np.maximum.reduceat(column, _run_starts(values), axis=1)
    row, run = np.nonzero(last >= 0)
    return row, last[row, run]


def _no_candidates() -> MatchCandidates:
    nothing, no_boxes = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    no_scores = np.zeros(0, np.float32)
    return find_candidates(Detections(no_boxes, no_scores, nothing), GroundTruth(nothing, no_boxes))


def _counts_before(counts: Sequence[int]) -> list[int]:
    return np.cumsum([0, *counts[:-1]]).tolist()
