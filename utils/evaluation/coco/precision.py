"""Average precision and recall for one size range.

Equal to pycocotools: monotone precision at 101 recalls, averaged over the IoU thresholds 0.50,
0.55, ... 0.95. Source: https://cocodataset.org/#detection-eval.
"""

from __future__ import annotations

from dataclasses import dataclass

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
