"""Precision, recall and COCO's average precision: coco_matching.py before, report and plots after.

Average precision equals pycocotools' on the same detections: precision made monotone, read at
101 recalls, averaged over the IoU thresholds 0.50, 0.55, ... 0.95 and over the classes.
Source: https://cocodataset.org/#detection-eval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from utils.coco_matching import (
    IOU_THRESHOLDS,
    GroundTruth,
    MatchCandidates,
    find_candidates,
    join_images,
    match_greedily,
    position_in_run,
)
from utils.nms import Detections

RECALL_GRID = np.linspace(0.0, 1.0, 101)


class OperatingPoint(NamedTuple):
    """Precision and recall of each class when one confidence decides which detections count."""

    confidence: float
    precision: np.ndarray  # (C,) float64
    recall: np.ndarray  # (C,) float64


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """How well a set of images was detected, by class and over all.

    Classes without ground truth are NaN in every per-class array and left out of the means; where
    no class has any, the means are 0.

    Precision and recall are at IoU 0.50 and, for all classes, at the one confidence whose mean F1
    over the classes with ground truth is the highest (the higher confidence where two are equal).
    A class without detections there has precision 0. As for average precision, the best 100
    detections of each image and class count.
    """

    class_names: tuple[str, ...]
    num_images: int
    num_ground_truth: np.ndarray  # (C,) int64
    confidence: float  # where precision and recall were taken; 0 without detections
    precision: np.ndarray  # (C,) float64
    recall: np.ndarray  # (C,) float64
    precision_curves: np.ndarray  # (C, 10, 101) float64: class, IOU_THRESHOLDS, RECALL_GRID

    @property
    def ap50(self) -> np.ndarray:
        """(C,) average precision at IoU 0.50."""
        return self.precision_curves[:, 0].mean(axis=-1)

    @property
    def ap(self) -> np.ndarray:
        """(C,) average precision over IoU 0.50 to 0.95."""
        return self.precision_curves.mean(axis=(1, 2))

    @property
    def mean_precision(self) -> float:
        """Mean of `precision` over the classes with ground truth."""
        return self._mean(self.precision)

    @property
    def mean_recall(self) -> float:
        """Mean of `recall` over the classes with ground truth."""
        return self._mean(self.recall)

    @property
    def map50(self) -> float:
        """Mean average precision at IoU 0.50."""
        return self._mean(self.ap50)

    @property
    def map(self) -> float:
        """Mean average precision over IoU 0.50 to 0.95, COCO's headline figure."""
        return self._mean(self.ap)

    def _mean(self, per_class: np.ndarray) -> float:
        evaluated = per_class[self.num_ground_truth > 0]
        return float(evaluated.mean()) if len(evaluated) else 0.0


class DetectionEvaluator:
    """Collects the detections and labels of images, one at a time, and measures them together."""

    def __init__(self, class_names: Sequence[str]) -> None:
        self.class_names = tuple(class_names)
        self._images: dict[int, MatchCandidates] = {}

    def add(self, image_id: int, detections: Detections, ground_truth: GroundTruth) -> None:
        """Add one image; both arguments in the same frame, once for each image_id.

        The order of the calls does not matter: detections of equal score in different images are
        ranked by image_id, as pycocotools does it.
        """
        assert image_id not in self._images, f"image {image_id} was added before"
        self._images[image_id] = find_candidates(detections, ground_truth)

    def result(self) -> EvaluationResult:
        """The measures of everything added so far."""
        images = [self._images[image_id] for image_id in sorted(self._images)]
        candidates = join_images(images)
        num_classes = len(self.class_names)
        num_ground_truth = np.bincount(candidates.object_class_index, minlength=num_classes)
        matched = match_greedily(candidates)
        order = np.lexsort((-candidates.scores, candidates.class_index))
        scores, class_index = candidates.scores[order], candidates.class_index[order]
        matched = matched[:, order]
        point = best_operating_point(scores, class_index, matched[0], num_ground_truth)
        return EvaluationResult(
            class_names=self.class_names,
            num_images=len(images),
            num_ground_truth=num_ground_truth,
            confidence=point.confidence,
            precision=point.precision,
            recall=point.recall,
            precision_curves=_curves_by_class(class_index, matched, num_ground_truth),
        )


def interpolated_precision(matched: np.ndarray, num_ground_truth: int) -> np.ndarray:
    """The best precision at each recall of the grid or beyond it.

    Args:
        matched: (T, D) bool, true positives of one class in descending score.
        num_ground_truth: objects of the class, at least 1.

    Returns:
        (T, 101) float64; 0 at recalls that are not reached.
    """
    true_positives = np.cumsum(matched, axis=1, dtype=np.float64)
    recall = true_positives / num_ground_truth
    # pycocotools adds np.spacing(1) to the denominator; so the first may be 2e-16 below 1.
    precision = true_positives / (np.arange(1, matched.shape[1] + 1) + np.spacing(1))
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    envelope = np.pad(envelope, ((0, 0), (0, 1)))
    return np.stack(
        [
            row[np.searchsorted(reached, RECALL_GRID)]
            for row, reached in zip(envelope, recall, strict=True)
        ]
    )


def best_operating_point(
    scores: np.ndarray, class_index: np.ndarray, matched: np.ndarray, num_ground_truth: np.ndarray
) -> OperatingPoint:
    """Precision and recall at the confidence with the highest mean F1.

    Args:
        scores: (D,) sorted by class, then descending.
        class_index: (D,) int64.
        matched: (D,) bool, true positives at the IoU threshold in question.
        num_ground_truth: (C,) objects; classes without any are NaN in the result.
    """
    absent = np.where(num_ground_truth > 0, 0.0, np.nan)
    known = num_ground_truth[class_index] > 0
    scores, class_index, matched = scores[known], class_index[known], matched[known]
    if len(scores) == 0:
        return OperatingPoint(0.0, precision=absent, recall=absent)
    confidence = _confidence_of_best_mean_f1(scores, class_index, matched, num_ground_truth)
    counted = class_index[scores >= confidence]
    correct = class_index[(scores >= confidence) & matched]
    num_classes = len(num_ground_truth)
    num_counted = np.bincount(counted, minlength=num_classes)
    num_correct = np.bincount(correct, minlength=num_classes)
    return OperatingPoint(
        confidence,
        precision=num_correct / np.maximum(num_counted, 1) + absent,
        recall=num_correct / np.maximum(num_ground_truth, 1) + absent,
    )


def _confidence_of_best_mean_f1(
    scores: np.ndarray, class_index: np.ndarray, matched: np.ndarray, num_ground_truth: np.ndarray
) -> float:
    # Counting one more detection changes the F1 of its class alone, so the sum over classes at
    # every confidence is a running sum of those changes in descending score.
    position = position_in_run(class_index)
    total = np.cumsum(matched)
    before_class = (total - matched)[np.arange(len(scores)) - position]
    f1 = 2 * (total - before_class) / (position + 1 + num_ground_truth[class_index])
    change = np.diff(f1, prepend=0.0)
    change[position == 0] = f1[position == 0]
    order = np.argsort(-scores, kind="stable")
    f1_sum, descending = np.cumsum(change[order]), scores[order]
    # Detections of equal score count together.
    last_of_equal = np.append(descending[1:] != descending[:-1], True)
    return float(descending[np.where(last_of_equal, f1_sum, -1.0).argmax()])


def _curves_by_class(
    class_index: np.ndarray, matched: np.ndarray, num_ground_truth: np.ndarray
) -> np.ndarray:
    """(C, 10, 101) interpolated precision from detections sorted by class and score."""
    curves = np.full((len(num_ground_truth), len(IOU_THRESHOLDS), len(RECALL_GRID)), np.nan)
    bounds = np.searchsorted(class_index, np.arange(len(num_ground_truth) + 1))
    for index in np.flatnonzero(num_ground_truth):
        detections = slice(bounds[index], bounds[index + 1])
        curves[index] = interpolated_precision(matched[:, detections], num_ground_truth[index])
    return curves
