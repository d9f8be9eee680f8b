"""Precision, recall and AP of each class as YOLOv5's old logs have them.

Before: `matching.py`. After: `metric.py` beside this.
Measured on the stored cases `nc3`, `nc80`, `nc80_missing`, `one` and `ap0` to `ap4` of YOLOv5: the
rules below give their float64 figures to 1e-15. They leave open how the mean F1 is smoothed within
50 points of an end of the confidence grid. The point of `ties` is at the end: holding the end value
and mirroring both fit it, adding zeros does not. Here the end value is held.

Equal scores are taken in the order in which they are listed. YOLOv5 took them in the order of
NumPy's default sort, which is not stable: with it NumPy 2 gives the stored AP of `ties`, NumPy 1.26
misses it by 0.004. The listed order misses it by up to 0.06.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from utils.evaluation.coco.precision import RECALL_GRID

CONFIDENCE_GRID = np.linspace(0.0, 1.0, 1000)
SMOOTHING_WINDOW = 101  # points of CONFIDENCE_GRID; the one odd width up to 299 that fits nc3, nc80


class ClassFigures(NamedTuple):
    """Figures of each class; NaN if it has no objects, 0 if it has no detections."""

    precision: np.ndarray  # (C,) float64, at IoU 0.50 and the one chosen confidence
    recall: np.ndarray  # (C,) float64, likewise
    average_precision: np.ndarray  # (C, T) float64


def measure_classes(
    scores: np.ndarray, class_index: np.ndarray, correct: np.ndarray, num_ground_truth: np.ndarray
) -> ClassFigures:
    """Return figures of all classes, with one confidence for the precision and recall of all.

    Args:
        scores: (D,) float, in [0, 1], in any order.
        class_index: (D,) int64, below C.
        correct: (D, T) bool, found an object, column per IoU threshold, 0.50 first.
        num_ground_truth: (C,) objects; a class without any is left out of the choice of the
            confidence, its detections with it (`nc80_missing`).
    """
    num_classes = len(num_ground_truth)
    precision, recall = np.zeros((2, num_classes, len(CONFIDENCE_GRID)))
    average_precision = np.zeros((num_classes, correct.shape[1]))
    order = np.lexsort((-scores, class_index))
    bounds = np.searchsorted(class_index[order], np.arange(num_classes + 1))
    for index in np.flatnonzero((num_ground_truth > 0) & (np.diff(bounds) > 0)):
        rows = order[bounds[index] : bounds[index + 1]]
        num_correct = np.cumsum(correct[rows], axis=0)
        recalls = num_correct / num_ground_truth[index]
        precisions = num_correct / np.arange(1, len(rows) + 1)[:, None]
        precision[index] = _at_confidences(scores[rows], precisions[:, 0], above_all=1.0)
        recall[index] = _at_confidences(scores[rows], recalls[:, 0], above_all=0.0)
        average_precision[index] = [
            area_under_curve(*curve) for curve in zip(recalls.T, precisions.T, strict=True)
        ]
    known = num_ground_truth > 0
    point = _best_confidence(precision[known], recall[known]) if known.any() else 0
    absent = np.where(known, 0.0, np.nan)
    return ClassFigures(
        precision[:, point] + absent, recall[:, point] + absent, average_precision + absent[:, None]
    )


def area_under_curve(recall: np.ndarray, precision: np.ndarray) -> float:
    """Return the average precision, with COCO's 101 recalls joined by straight lines.

    Both (D,) float64, a class's figures after each detection in descending score. The precision of
    a recall is the best at it or beyond. The stored curves `ap*_mrec` and `ap*_mpre` begin at
    precision 1 and run on straight from the last detection to recall 1 at precision 0, where COCO
    has 0 beyond the last recall. The stored areas are those below the trapezoids; means of the 101
    values, COCO's rule, miss them by up to 0.004.
    """
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    known_recall = np.concatenate(([0.0], recall, [1.0]))
    curve = np.interp(RECALL_GRID, known_recall, np.concatenate(([1.0], envelope, [0.0])))
    return float((curve[1:] + curve[:-1]).mean() / 2)


def _at_confidences(scores: np.ndarray, values: np.ndarray, above_all: float) -> np.ndarray:
    """Read values after detections of these descending scores at CONFIDENCE_GRID, (1000,).

    Straight between the scores; above the highest the value that the stored arrays have there
    (precision 1 in `nc80_missing`), below the lowest the last one.
    """
    return np.interp(-CONFIDENCE_GRID, -scores, values, left=above_all)


def _best_confidence(precision: np.ndarray, recall: np.ndarray) -> int:
    """Return the index on CONFIDENCE_GRID where the smoothed mean F1 of the classes is highest.

    Both (C, 1000), C > 0. Classes without detections count with F1 0 (`nc80_missing`).
    """
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0)
    padded = np.pad(f1.mean(axis=0), SMOOTHING_WINDOW // 2, mode="edge")
    return int(np.convolve(padded, np.ones(SMOOTHING_WINDOW), mode="valid").argmax())
