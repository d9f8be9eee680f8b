"""Precision and recall at the best confidence.

Before: `matching.py`. After: `metric.py` beside this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from utils.evaluation.coco.matching import position_in_run
from utils.evaluation.ordering import descending_order


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
    order = descending_order(scores)
    f1_sum, descending = np.cumsum(change[order]), scores[order]
    # Detections of equal score count together.
    last_of_equal = np.append(descending[1:] != descending[:-1], True)
    return float(descending[np.where(last_of_equal, f1_sum, -1.0).argmax()])
