"""Metrics of objects by box and by mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from duet.utils.detections import GroundTruth, Segmentations
from duet.utils.evaluation.coco.matching import MASKS
from duet.utils.evaluation.coco.metric import DetectionEvaluator, ObjectMetric
from duet.utils.evaluation.legacy import LegacyEvaluator


class MaskResult(NamedTuple):
    """Metrics by box and by mask.

    COCO: an `EvaluationResult` and a `MetricResult`; YOLOv5: a `LegacyResult` each.
    """

    boxes: Any
    masks: Any

    @property
    def means(self) -> tuple[float, ...]:
        """Metrics over all classes: boxes, then masks."""
        return *self.boxes.means, *self.masks.means


class MaskEvaluator:
    """Evaluates objects with masks both ways, added image by image."""

    def __init__(self, boxes: Any, masks: Any) -> None:
        self._boxes, self._masks = boxes, masks

    def add(self, image_id: int, found: Segmentations, ground_truth: GroundTruth) -> None:
        """Add one image, as `ObjectMetric.add`; the labelled objects have masks."""
        self._boxes.add(image_id, found, ground_truth)
        self._masks.add(image_id, found, ground_truth)

    def result(self) -> MaskResult:
        """Return the metrics of all images added so far."""
        return MaskResult(self._boxes.result(), self._masks.result())


def coco_masks(class_names: Sequence[str]) -> MaskEvaluator:
    """Return a new evaluator of COCO metrics."""
    return MaskEvaluator(DetectionEvaluator(class_names), ObjectMetric(class_names, MASKS))


def legacy_masks(class_names: Sequence[str]) -> MaskEvaluator:
    """Return a new evaluator of YOLOv5's metrics."""
    return MaskEvaluator(LegacyEvaluator(class_names), LegacyEvaluator(class_names, MASKS))
