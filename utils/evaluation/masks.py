"""The figures of objects by their boxes, and by their masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from duet.utils.detections import GroundTruth, Segmentations
from duet.utils.evaluation.coco.matching import MASKS
from duet.utils.evaluation.coco.metric import DetectionEvaluator, ObjectMetric
from duet.utils.evaluation.legacy import LegacyEvaluator


class MaskResult(NamedTuple):
    """How well the objects of a set of images were found.

    COCO's are an `EvaluationResult` and a `MetricResult`, YOLOv5's a `LegacyResult` each.
    """

    boxes: Any
    masks: Any

    @property
    def means(self) -> tuple[float, ...]:
        """The figures over all classes: those of the boxes, then those of the masks."""
        return *self.boxes.means, *self.masks.means


class MaskEvaluator:
    """Objects with masks and their labels, added image by image and measured both ways."""

    def __init__(self, boxes: Any, masks: Any) -> None:
        self._boxes, self._masks = boxes, masks

    def add(self, image_id: int, found: Segmentations, ground_truth: GroundTruth) -> None:
        """Add one image, as `ObjectMetric.add`; the labelled objects have masks."""
        self._boxes.add(image_id, found, ground_truth)
        self._masks.add(image_id, found, ground_truth)

    def result(self) -> MaskResult:
        """Return the measures of everything added so far."""
        return MaskResult(self._boxes.result(), self._masks.result())


def coco_masks(class_names: Sequence[str]) -> MaskEvaluator:
    """Return an evaluator of COCO's metric that has seen no image yet."""
    return MaskEvaluator(DetectionEvaluator(class_names), ObjectMetric(class_names, MASKS))


def legacy_masks(class_names: Sequence[str]) -> MaskEvaluator:
    """Return an evaluator of YOLOv5's figures that has seen no image yet."""
    return MaskEvaluator(LegacyEvaluator(class_names), LegacyEvaluator(class_names, MASKS))
