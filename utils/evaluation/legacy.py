"""The metric as YOLOv5 prints it, for comparing with old logs; docs/en/accuracy.md has its rules.

Written from figures that YOLOv5 gave for stored inputs (`../shared/golden/metrics`), which it meets
to 1e-9. They leave open how the mean F1 is smoothed near the ends of the confidence grid, where the
end value is held here, and the order of equal scores, which are taken as listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from duet.utils.detections import GroundTruth
from duet.utils.evaluation.coco.matching import BOXES, IOU_THRESHOLDS, Overlap
from duet.utils.evaluation.coco.metric import ClassMeans
from duet.utils.evaluation.coco.precision import RECALL_GRID

CONFIDENCE_GRID = np.linspace(0.0, 1.0, 1000)
SMOOTHING_WINDOW = 101  # points of CONFIDENCE_GRID; the one odd width up to 299 that fits


@dataclass(frozen=True, eq=False)
class LegacyResult(ClassMeans):
    """YOLOv5's figures by class; NaN where a class has no objects. Crowds are no objects."""

    class_names: tuple[str, ...]
    num_images: int
    num_ground_truth: np.ndarray  # (C,) int64 objects
    precision: np.ndarray  # (C,) float64, at IoU 0.50 and one confidence for all classes
    recall: np.ndarray  # (C,) float64, likewise
    average_precision: np.ndarray  # (C, 10) float64: class, IOU_THRESHOLDS
    ap50: np.ndarray  # (C,) float64, of it that at IoU 0.50
    ap: np.ndarray  # (C,) float64, of it the mean over IoU 0.50 to 0.95


class LegacyEvaluator:
    """Detections and labels, added image by image and measured together."""

    def __init__(self, class_names: Sequence[str], overlap: Overlap = BOXES) -> None:
        self.class_names, self._overlap = tuple(class_names), overlap
        self._images: dict[int, tuple[np.ndarray, ...]] = {}

    def add(self, image_id: int, found: Any, ground_truth: GroundTruth) -> None:
        """Add one image, as `ObjectMetric.add`; all detections count, however many."""
        assert image_id not in self._images, f"image {image_id} was added before"
        if ground_truth.is_crowd is not None:
            ground_truth = ground_truth.take(~ground_truth.is_crowd)
        correct = find_objects(found, ground_truth, self._overlap)
        self._images[image_id] = found.scores, found.class_index, correct, ground_truth.class_index

    def result(self) -> LegacyResult:
        """Return the measures of everything added so far."""
        nothing = np.zeros(0), np.zeros(0, np.int64), np.zeros((0, len(IOU_THRESHOLDS)), bool)
        images = [(*nothing, nothing[1]), *(x for _, x in sorted(self._images.items()))]
        scores, class_index, correct, labels = map(np.concatenate, zip(*images, strict=True))
        counts = np.bincount(labels, minlength=len(self.class_names))
        precision, recall, every = measure_classes(scores, class_index, correct, counts)
        of_classes = precision, recall, every, every[:, 0], every.mean(axis=1)
        return LegacyResult(self.class_names, len(self._images), counts, *of_classes)


def find_objects(found: Any, objects: GroundTruth, overlap: Overlap = BOXES) -> np.ndarray:
    """Return (D, 10) bool: which detections find an object, column per IOU_THRESHOLDS.

    PASCAL VOC's rule (Everingham et al. 2010): a detection is for the object of its class that it
    overlaps most; of those that reach the threshold, the first in their order finds it.
    """
    correct = np.zeros((len(found.scores), len(IOU_THRESHOLDS)), bool)
    if not len(objects.class_index):
        return correct
    iou = overlap.iou(found, objects, np.zeros(len(objects.class_index), bool))
    iou = np.where(found.class_index[:, None] == objects.class_index, iou, 0.0)
    best, best_iou = iou.argmax(axis=1), iou.max(axis=1)
    for column, threshold in enumerate(IOU_THRESHOLDS):
        reaches = np.flatnonzero(best_iou >= threshold)
        _, first = np.unique(best[reaches], return_index=True)
        correct[reaches[first], column] = True
    return correct


def measure_classes(
    scores: np.ndarray, class_index: np.ndarray, correct: np.ndarray, num_objects: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return precision (C,), recall (C,) and average precision (C, T) of each class.

    Precision and recall are read where the smoothed mean F1 of the classes with objects is highest:
    straight between scores, and above the highest score precision 1 and recall 0. The curve of an
    average precision begins at precision 1, takes the best one at each recall or beyond, and runs
    on straight from the last detection to recall 1 at precision 0, where COCO has 0.

    Args:
        scores, class_index: (D,).
        correct: (D, T) bool, column per IoU threshold, 0.50 first; num_objects: (C,).
    """
    curves = np.zeros((2, len(num_objects), len(CONFIDENCE_GRID)))
    average_precision = np.zeros((len(num_objects), correct.shape[1]))
    for index in np.flatnonzero((num_objects > 0) & np.isin(range(len(num_objects)), class_index)):
        rows = np.flatnonzero(class_index == index)
        rows = rows[np.argsort(-scores[rows], kind="stable")]
        num_correct = np.cumsum(correct[rows], axis=0)
        recalls = num_correct / num_objects[index]
        precisions = num_correct / np.arange(1, len(rows) + 1)[:, None]
        for curve, values, above_all in zip(curves, (precisions, recalls), (1, 0), strict=True):
            # A falling grid and falling scores, both negated: np.interp takes rising ones.
            curve[index] = np.interp(-CONFIDENCE_GRID, -scores[rows], values[:, 0], left=above_all)
        for column, (recall, precision) in enumerate(zip(recalls.T, precisions.T, strict=True)):
            envelope = np.maximum.accumulate(precision[::-1])[::-1]
            ends = np.concatenate(([0.0], recall, [1.0])), np.concatenate(([1.0], envelope, [0.0]))
            curve = np.interp(RECALL_GRID, *ends)
            average_precision[index, column] = (curve[1:] + curve[:-1]).mean() / 2
    total, known = curves.sum(axis=0), num_objects > 0
    f1 = 2 * curves.prod(axis=0) / np.where(total > 0, total, 1)
    mean = f1[known].mean(axis=0) if known.any() else f1.sum(axis=0)
    padded = np.pad(mean, SMOOTHING_WINDOW // 2, mode="edge")
    point = int(np.convolve(padded, np.ones(SMOOTHING_WINDOW), mode="valid").argmax())
    absent = np.where(known, 0.0, np.nan)
    return *(curves[:, :, point] + absent), average_precision + absent[:, None]
