"""Precision, recall and F1 of each class at every confidence, and at the best one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from utils.evaluation.coco.matching import position_in_run

CONFIDENCE_GRID = np.linspace(0.0, 1.0, 501)


@dataclass(frozen=True, eq=False)
class ByConfidence:
    """The figures of each class if only detections of at least a confidence count.

    Each array of figures is (C, 501) float64, column per CONFIDENCE_GRID. Classes without ground
    truth are NaN in it.
    """

    num_found: np.ndarray  # (C, 501) int32 detections of at least this confidence
    num_correct: np.ndarray  # (C, 501) int32 of these, with an object at IoU 0.50
    num_ground_truth: np.ndarray  # (C,) int64

    @property
    def precision(self) -> np.ndarray:
        """NaN too where nothing is left."""
        return self.num_correct / self._known(self.num_found)

    @property
    def recall(self) -> np.ndarray:
        """The fraction of the objects that is found."""
        return self.num_correct / self._known(self.num_ground_truth[:, None])

    @property
    def f1(self) -> np.ndarray:
        """The harmonic mean of both; 0 if nothing is left."""
        total = self.num_found + self.num_ground_truth[:, None]
        return 2 * self.num_correct / self._known(total)

    def _known(self, denominator: np.ndarray) -> np.ndarray:
        is_known = (self.num_ground_truth[:, None] > 0) & (denominator > 0)
        return np.where(is_known, denominator, np.nan)


def count_by_confidence(
    scores: np.ndarray, class_index: np.ndarray, correct: np.ndarray, num_ground_truth: np.ndarray
) -> ByConfidence:
    """Count the detections (D,) that are left at each confidence, and the correct ones of them."""
    step = np.searchsorted(CONFIDENCE_GRID, scores, side="right") - 1
    shape = len(num_ground_truth), len(CONFIDENCE_GRID)
    place = class_index * shape[1] + step
    counts = [
        np.bincount(places, minlength=shape[0] * shape[1]).reshape(shape)
        for places in (place, place[correct])
    ]
    found, right = (np.cumsum(count[:, ::-1], axis=1, dtype=np.int32)[:, ::-1] for count in counts)
    return ByConfidence(found, right, num_ground_truth)


class OperatingPoint(NamedTuple):
    """Precision and recall of each class when one confidence decides which detections count."""

    confidence: float
    precision: np.ndarray  # (C,) float64
    recall: np.ndarray  # (C,) float64


def best_operating_point(
    scores: np.ndarray, class_index: np.ndarray, matched: np.ndarray, num_ground_truth: np.ndarray
) -> OperatingPoint:
    """Return precision and recall at the confidence with the highest mean F1.

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
    confidence = float(descending[np.where(last_of_equal, f1_sum, -1.0).argmax()])
    num_counted, num_correct = (
        np.bincount(class_index[rows], minlength=len(num_ground_truth))
        for rows in (scores >= confidence, (scores >= confidence) & matched)
    )
    return OperatingPoint(
        confidence,
        precision=num_correct / np.maximum(num_counted, 1) + absent,
        recall=num_correct / np.maximum(num_ground_truth, 1) + absent,
    )
