"""The figures of objects by their boxes, and by their masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from utils.detections import GroundTruth, Segmentations
from utils.evaluation.coco.metric import (
    DetectionEvaluator,
    EvaluationResult,
    MetricResult,
    ObjectMetric,
)
from utils.evaluation.legacy.metric import LegacyEvaluator, LegacyResult
from utils.evaluation.overlap import MASKS

OfBoxes = TypeVar("OfBoxes", covariant=True)
OfMasks = TypeVar("OfMasks", covariant=True)
Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True, eq=False)
class BoxesAndMasks(Generic[OfBoxes, OfMasks]):
    """How well the objects of a set of images were found."""

    boxes: OfBoxes
    masks: OfMasks


class _Measure(Protocol[Result]):
    def add(self, image_id: int, found: Any, ground_truth: GroundTruth) -> None:
        """Add an image."""

    def result(self) -> Result:
        """Return the figures of all images."""


class MaskEvaluator(Generic[OfBoxes, OfMasks]):
    """Objects with masks and their labels, added image by image and measured both ways."""

    def __init__(self, boxes: _Measure[OfBoxes], masks: _Measure[OfMasks]) -> None:
        self._boxes, self._masks = boxes, masks

    def add(self, image_id: int, found: Segmentations, ground_truth: GroundTruth) -> None:
        """Add one image, as `ObjectMetric.add`; the labelled objects have masks."""
        self._boxes.add(image_id, found, ground_truth)
        self._masks.add(image_id, found, ground_truth)

    def result(self) -> BoxesAndMasks[OfBoxes, OfMasks]:
        """Return the measures of everything added so far."""
        return BoxesAndMasks(self._boxes.result(), self._masks.result())


MaskResult = BoxesAndMasks[EvaluationResult, MetricResult]
LegacyMaskResult = BoxesAndMasks[LegacyResult, LegacyResult]


def coco_masks(class_names: Sequence[str]) -> MaskEvaluator[EvaluationResult, MetricResult]:
    """Return an evaluator of COCO's metric that has seen no image yet."""
    return MaskEvaluator(DetectionEvaluator(class_names), ObjectMetric(class_names, MASKS))


def legacy_masks(class_names: Sequence[str]) -> MaskEvaluator[LegacyResult, LegacyResult]:
    """Return an evaluator of YOLOv5's figures that has seen no image yet."""
    return MaskEvaluator(LegacyEvaluator(class_names), LegacyEvaluator(class_names, MASKS))
