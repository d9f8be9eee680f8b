"""YOLOv5's own metrics, for comparison with old logs; rules: docs/en/accuracy.md.

Derived from YOLOv5's results for stored inputs (`../shared/golden/metrics`), reproduced to 1e-9.
They do not determine how the mean F1 is smoothed near the ends of the confidence grid, where the
end value is repeated here, and the order of equal scores, which is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from duet.utils.evaluation.coco.matching import BOXES, IOU_THRESHOLDS, MASKS, Overlap
from duet.utils.evaluation.coco.metric import ClassMeans, MaskEvaluator
from duet.utils.evaluation.coco.precision import RECALL_GRID
from duet.utils.geometry.detections import FoundObjects, GroundTruth

CONFIDENCE_GRID = np.linspace(0.0, 1.0, 1000)
SMOOTHING_WINDOW = 101  # points of CONFIDENCE_GRID; the only odd width up to 299 that matches


@dataclass(frozen=True, eq=False)
class LegacyResult(ClassMeans):
    """YOLOv5's metrics per class; NaN for classes without objects. Crowds are not objects."""

    class_names: tuple[str, ...]
    num_images: int
    num_ground_truth: np.ndarray  # (C,) int64 objects
    precision: np.ndarray  # (C,) float64, at IoU 0.50 and one confidence for all classes
    recall: np.ndarray  # (C,) float64, likewise
    average_precision: np.ndarray  # (C, 10) float64: class, IOU_THRESHOLDS
    ap50: np.ndarray  # (C,) float64, at IoU 0.50
    ap: np.ndarray  # (C,) float64, mean over IoU 0.50 to 0.95


class LegacyEvaluator:
    """Computes YOLOv5's metrics of detections and labels added image by image."""

    def __init__(self, class_names: Sequence[str], overlap: Overlap = BOXES) -> None:
        self.class_names, self._overlap = tuple(class_names), overlap
        self._images: dict[int, tuple[np.ndarray, ...]] = {}

    def add(self, image_id: int, found: FoundObjects, ground_truth: GroundTruth) -> None:
        """Add one image, as `ObjectMetric.add`; the number of detections is not limited."""
        assert image_id not in self._images, f"image {image_id} was added before"
        if ground_truth.is_crowd is not None:
            ground_truth = ground_truth.take(~ground_truth.is_crowd)
        correct = find_objects(found, ground_truth, self._overlap)
        self._images[image_id] = found.scores, found.class_index, correct, ground_truth.class_index

    def result(self) -> LegacyResult:
        nothing = np.zeros(0), np.zeros(0, np.int64), np.zeros((0, len(IOU_THRESHOLDS)), bool)
        images = [(*nothing, nothing[1]), *(x for _, x in sorted(self._images.items()))]
        scores, class_index, correct, labels = map(np.concatenate, zip(*images, strict=True))
        counts = np.bincount(labels, minlength=len(self.class_names))
        precision, recall, every = measure_classes(scores, class_index, correct, counts)
        of_classes = precision, recall, every, every[:, 0], every.mean(axis=1)
        return LegacyResult(self.class_names, len(self._images), counts, *of_classes)


def legacy_masks(class_names: Sequence[str]) -> MaskEvaluator:
    return MaskEvaluator(LegacyEvaluator(class_names), LegacyEvaluator(class_names, MASKS))


def find_objects(found: FoundObjects, objects: GroundTruth, overlap: Overlap = BOXES) -> np.ndarray:
    """Return (D, 10) bool: which detections match an object, column per IOU_THRESHOLDS.

    PASCAL VOC's rule (Everingham et al. 2010): a detection belongs to the object of its class with
    the highest IoU; the first of those that reach the threshold matches it.
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
    """Return precision (C,), recall (C,) and average precision (C, T) per class.

    Precision and recall are read where the smoothed mean F1 of the classes with objects is highest,
    interpolated between scores, with precision 1 and recall 0 above the highest. The curve for
    average precision starts at precision 1, uses the best precision at or beyond each recall, and
    continues linearly from the last detection to recall 1 at precision 0, where COCO has 0.

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
            # Both are negated because np.interp requires ascending values.
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
