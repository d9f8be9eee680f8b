"""Average precision and recall for one size range; and precision and recall by confidence.

The former equal pycocotools': monotone precision at 101 recalls, averaged over the IoU thresholds
0.50, 0.55, ... 0.95. Source: https://cocodataset.org/#detection-eval.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from duet.utils.evaluation.coco.matching import IOU_THRESHOLDS, Matches, position_in_run

RECALL_GRID = np.linspace(0.0, 1.0, 101)
DETECTION_LIMITS = (1, 10, 100)


@dataclass(frozen=True, eq=False)
class SizeResult:
    """Metrics for one size range; classes without objects are NaN."""

    num_ground_truth: np.ndarray  # (C,) int64, without crowds
    precision_curves: np.ndarray  # (C, 10, 101) float64: class, IOU_THRESHOLDS, RECALL_GRID
    recall: np.ndarray  # (C, 10, 3) float64: class, IOU_THRESHOLDS, DETECTION_LIMITS

    @property
    def ap50(self) -> np.ndarray:
        """(C,) average precision at IoU 0.50."""
        return self.precision_curves[:, 0].mean(axis=-1)

    @property
    def ap75(self) -> np.ndarray:
        """(C,) average precision at IoU 0.75."""
        return self.precision_curves[:, 5].mean(axis=-1)

    @property
    def ap(self) -> np.ndarray:
        """(C,) average precision over IoU 0.50 to 0.95."""
        return self.precision_curves.mean(axis=(1, 2))

    @property
    def ar(self) -> np.ndarray:
        """(C, 3) recall over IoU 0.50 to 0.95 of the best 1, 10 and 100 per image and class."""
        return self.recall.mean(axis=1)

    def class_mean(self, per_class: np.ndarray) -> float:
        """Return the mean of (C,) values over classes with objects of this size; NaN if none."""
        evaluated = per_class[self.num_ground_truth > 0]
        return float(evaluated.mean()) if len(evaluated) else float("nan")


def measure_by_class(
    class_index: np.ndarray, rank: np.ndarray, matches: Matches, num_ground_truth: np.ndarray
) -> SizeResult:
    """Return precision curves and recalls per class.

    Args:
        class_index: (D,) int64, detections sorted by class, then by descending score.
        rank: (D,) int64, rank by score within image and class.
        matches: outcomes of these detections, in the same order.
        num_ground_truth: (C,) number of objects.
    """
    num_classes, num_thresholds = len(num_ground_truth), len(IOU_THRESHOLDS)
    curves = np.full((num_classes, num_thresholds, len(RECALL_GRID)), np.nan)
    bounds = np.searchsorted(class_index, np.arange(num_classes + 1))
    for index in np.flatnonzero(num_ground_truth):
        detections = slice(bounds[index], bounds[index + 1])
        correct, counted = (flags[:, detections] for flags in matches)
        curves[index] = interpolated_precision(correct, counted, num_ground_truth[index])
    threshold, detection = _places_of(matches.correct)
    place, rank = class_index[detection] * num_thresholds + threshold, rank[detection]
    size = num_classes * num_thresholds
    found = [np.bincount(place[rank < limit], minlength=size) for limit in DETECTION_LIMITS]
    num_found = np.stack(found, axis=1).reshape(num_classes, num_thresholds, len(found))
    objects = np.where(num_ground_truth > 0, num_ground_truth, np.nan)
    return SizeResult(num_ground_truth, curves, num_found / objects[:, None, None])


def interpolated_precision(
    correct: np.ndarray, counted: np.ndarray, num_ground_truth: int
) -> np.ndarray:
    """Return the best precision at or beyond each recall of the grid.

    Args:
        correct: (T, D) bool, true positives of one class by descending score.
        counted: (T, D) bool, true and false positives.
        num_ground_truth: number of objects of the class, at least 1.

    Returns:
        (T, 101) float64; 0 at unreached recalls.
    """
    threshold, detection = _places_of(correct)
    num_correct = position_in_run(threshold) + 1
    num_counted = np.cumsum(counted, axis=1, dtype=np.int32)[threshold, detection]
    # Precision rises only at true positives, so only their columns are needed for its maxima.
    most = int(num_correct.max(initial=0))
    precision = np.zeros((len(correct), most + 1))
    # pycocotools adds np.spacing(1) to the denominator, so the first may be 2e-16 below 1.
    precision[threshold, num_correct - 1] = num_correct / (num_counted + np.spacing(1))
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    reached = np.searchsorted(np.arange(1, num_ground_truth + 1) / num_ground_truth, RECALL_GRID)
    return envelope[:, np.minimum(reached, most)]


def _places_of(flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (row, column) of each True like np.nonzero, three times as fast if few are True."""
    row, column = np.divmod(np.flatnonzero(flags), flags.shape[1])
    return row, column


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


def best_operating_point(
    scores: np.ndarray, class_index: np.ndarray, matched: np.ndarray, num_ground_truth: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the confidence with the highest mean F1, and precision and recall there, (C,).

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
        return 0.0, absent, absent
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
    precision = num_correct / np.maximum(num_counted, 1) + absent
    return confidence, precision, num_correct / np.maximum(num_ground_truth, 1) + absent
