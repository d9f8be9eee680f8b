"""Precision, recall and F1 per class at every confidence, and at the best one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from duet.utils.evaluation.coco.matching import position_in_run

CONFIDENCE_GRID = np.linspace(0.0, 1.0, 501)


class ByConfidence(NamedTuple):
    """Metrics per class when only detections of at least a confidence count.

    Each is (C, 501) float64, column per CONFIDENCE_GRID; classes without ground truth are NaN.
    """

    precision: np.ndarray  # also NaN without detections
    recall: np.ndarray
    f1: np.ndarray  # 0 without detections


def curves_by_confidence(
    scores: np.ndarray, class_index: np.ndarray, correct: np.ndarray, num_ground_truth: np.ndarray
) -> ByConfidence:
    """Return the metrics of detections (D,) by confidence, at IoU 0.50."""
    step = np.searchsorted(CONFIDENCE_GRID, scores, side="right") - 1
    shape = len(num_ground_truth), len(CONFIDENCE_GRID)
    place = class_index * shape[1] + step
    counts = [
        np.bincount(places, minlength=shape[0] * shape[1]).reshape(shape)
        for places in (place, place[correct])
    ]
    found, right = (np.cumsum(count[:, ::-1], axis=1)[:, ::-1] for count in counts)
    objects = np.where(num_ground_truth > 0, num_ground_truth, np.nan)[:, None]
    precision = right / np.where((found > 0) & (objects > 0), found, np.nan)
    return ByConfidence(precision, right / objects, 2 * right / (found + objects))


class OperatingPoint(NamedTuple):
    """Precision and recall per class at one confidence threshold."""

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
        matched: (D,) bool, true positives at the IoU threshold.
        num_ground_truth: (C,) objects; classes without any are NaN in the result.
    """
    absent = np.where(num_ground_truth > 0, 0.0, np.nan)
    known = num_ground_truth[class_index] > 0
    scores, class_index, matched = scores[known], class_index[known], matched[known]
    if len(scores) == 0:
        return OperatingPoint(0.0, precision=absent, recall=absent)
    # One more detection changes only the F1 of its class, so the sum over classes at every
    # confidence is a cumulative sum of these changes in descending score.
    position = position_in_run(class_index)
    total = np.cumsum(matched)
    before_class = (total - matched)[np.arange(len(scores)) - position]
    f1 = 2 * (total - before_class) / (position + 1 + num_ground_truth[class_index])
    change = np.diff(f1, prepend=0.0)
    change[position == 0] = f1[position == 0]
    order = np.argsort(-scores, kind="stable")
    f1_sum, descending = np.cumsum(change[order]), scores[order]
    # Detections with equal scores count together.
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
