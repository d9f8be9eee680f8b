"""COCO's detection metrics over a set of images.

All values equal pycocotools' for the same detections, objects and crowds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from duet.utils.evaluation.coco.confusion import CONFIDENCE_ABOVE, Confusion, ConfusionCounter
from duet.utils.evaluation.coco.matching import (
    BOXES,
    MASKS,
    SIZE_RANGES,
    MatchCandidates,
    Overlap,
    by_class_and_score,
    find_candidates,
    ignored_objects,
    join_images,
    match_greedily,
)
from duet.utils.evaluation.coco.per_image import PerImage
from duet.utils.evaluation.coco.precision import (
    ByConfidence,
    SizeResult,
    best_operating_point,
    curves_by_confidence,
    measure_by_class,
)
from duet.utils.geometry.detections import Detections, FoundObjects, GroundTruth, Segmentations

NUM_EXAMPLES = 48  # images; three plots of sixteen


class Example(NamedTuple):
    found: Detections | Segmentations  # above the confidence of the confusion matrix
    truth: GroundTruth


class ClassMeans:
    """Means of per-class results over the classes with objects; 0 if there are none."""

    @property
    def means(self: Any) -> tuple[float, ...]:
        """P, R, mAP50 and mAP50-95, as in tables and results.csv."""
        known = self.num_ground_truth > 0
        per_class = self.precision, self.recall, self.ap50, self.ap
        return tuple(float(x[known].mean()) if known.any() else 0.0 for x in per_class)

    @property
    def map50(self: Any) -> float:
        """Mean average precision at IoU 0.50."""
        return self.means[2]

    @property
    def map(self: Any) -> float:
        """Mean average precision over IoU 0.50 to 0.95, COCO's main metric."""
        return self.means[3]


@dataclass(frozen=True, eq=False)
class MetricResult(ClassMeans):
    """COCO metrics of a set of images, per class and over all.

    Classes without ground truth are NaN in per-class arrays and excluded from the means; if no
    class has any, the means are 0, and NaN in the summary. Crowds are not ground truth.

    Precision and recall are at IoU 0.50 and at one confidence for all classes: that with the
    highest mean F1 over the classes with ground truth, or the highest such confidence. Classes
    without detections there have precision 0. As for average precision, the best 100 detections
    per image and class count, except those on crowds.
    """

    class_names: tuple[str, ...]
    num_images: int
    confidence: float  # threshold for precision and recall; 0 without detections
    precision: np.ndarray  # (C,) float64
    recall: np.ndarray  # (C,) float64
    sizes: Mapping[str, SizeResult]  # keys as in SIZE_RANGES
    by_confidence: ByConfidence
    per_image: PerImage  # of the images in the order of their IDs

    @property
    def num_ground_truth(self) -> np.ndarray:
        """(C,) int64 objects, without crowds."""
        return self.sizes["all"].num_ground_truth

    @property
    def precision_curves(self) -> np.ndarray:
        """(C, 10, 101) float64: class, IOU_THRESHOLDS, RECALL_GRID."""
        return self.sizes["all"].precision_curves

    @property
    def ap50(self) -> np.ndarray:
        """(C,) average precision at IoU 0.50."""
        return self.sizes["all"].ap50

    @property
    def ap(self) -> np.ndarray:
        """(C,) average precision over IoU 0.50 to 0.95."""
        return self.sizes["all"].ap

    def summary(self) -> dict[str, float]:
        """Return COCO's 12 metrics in order; NaN, instead of COCO's -1, without ground truth."""
        everything = self.sizes["all"]
        by_size = {name: self.sizes[name] for name in ("small", "medium", "large")}
        return {
            "AP": everything.class_mean(everything.ap),
            "AP50": everything.class_mean(everything.ap50),
            "AP75": everything.class_mean(everything.ap75),
            **{f"AP{name}": size.class_mean(size.ap) for name, size in by_size.items()},
            "AR1": everything.class_mean(everything.ar[:, 0]),
            "AR10": everything.class_mean(everything.ar[:, 1]),
            "AR100": everything.class_mean(everything.ar[:, 2]),
            **{f"AR{name}": size.class_mean(size.ar[:, 2]) for name, size in by_size.items()},
        }


@dataclass(frozen=True, eq=False)
class EvaluationResult(MetricResult):
    """Box metrics with a confusion matrix and example images."""

    confusion: Confusion
    examples: Mapping[int, Example]  # images with IDs below NUM_EXAMPLES, by ID


class ObjectMetric:
    """Computes COCO metrics of detections and labels added image by image.

    Args:
        overlap: compares boxes or masks.
    """

    def __init__(self, class_names: Sequence[str], overlap: Overlap = BOXES) -> None:
        self.class_names, self._overlap = tuple(class_names), overlap
        self._images: dict[int, MatchCandidates] = {}

    def add(self, image_id: int, found: FoundObjects, ground_truth: GroundTruth) -> None:
        """Add one image, once per image_id; both arguments in the same frame.

        The order of calls does not matter: equal scores in different images are ranked by image_id,
        as in pycocotools.
        """
        assert image_id not in self._images, f"image {image_id} was added before"
        self._images[image_id] = find_candidates(found, ground_truth, self._overlap)

    def result(self) -> MetricResult:
        images = [self._images[image_id] for image_id in sorted(self._images)]
        joined = join_images(images)
        image = np.repeat(np.arange(len(images)), [len(each.scores) for each in images])
        image = image[np.lexsort((-joined.scores, joined.class_index))]
        candidates = by_class_and_score(joined)
        scores, class_index = candidates.scores, candidates.class_index
        matches = {name: match_greedily(candidates, size) for name, size in SIZE_RANGES.items()}
        sizes = {
            name: measure_by_class(
                class_index,
                candidates.rank,
                matches[name],
                np.bincount(
                    candidates.object_class_index[~ignored_objects(candidates, size)],
                    minlength=len(self.class_names),
                ),
            )
            for name, size in SIZE_RANGES.items()
        }
        correct, counted = matches["all"].correct[0], matches["all"].counted[0]
        found = scores[counted], class_index[counted], correct[counted]
        num_ground_truth = sizes["all"].num_ground_truth
        confidence, precision, recall = best_operating_point(*found, num_ground_truth)
        return MetricResult(
            class_names=self.class_names,
            num_images=len(self._images),
            confidence=confidence,
            precision=precision,
            recall=recall,
            sizes=sizes,
            by_confidence=curves_by_confidence(*found, num_ground_truth),
            per_image=PerImage(image, class_index, *matches["all"], self._objects(images)),
        )

    def _objects(self, images: Sequence[MatchCandidates]) -> np.ndarray:
        """Return the number of objects per image and class, without crowds, (S, C) int32."""
        number, size = len(self.class_names), SIZE_RANGES["all"]
        counts = np.zeros((len(images), number), np.int32)
        for row, x in zip(counts, images, strict=True):
            row[:] = np.bincount(x.object_class_index[~ignored_objects(x, size)], minlength=number)
        return counts


class DetectionEvaluator:
    def __init__(self, class_names: Sequence[str]) -> None:
        self._metric = ObjectMetric(class_names)
        self._confusion = ConfusionCounter(len(class_names))
        self._examples: dict[int, Example] = {}

    def add(
        self, image_id: int, found: Detections | Segmentations, ground_truth: GroundTruth
    ) -> None:
        """Add one image, as `ObjectMetric.add`."""
        self._metric.add(image_id, found, ground_truth)
        self._confusion.add(found, ground_truth)
        if image_id < NUM_EXAMPLES:
            shown = found.take(np.flatnonzero(found.scores > CONFIDENCE_ABOVE))
            self._examples[image_id] = Example(shown, ground_truth)

    def result(self) -> EvaluationResult:
        return EvaluationResult(
            **vars(self._metric.result()),
            confusion=self._confusion.result(),
            examples=dict(sorted(self._examples.items())),
        )


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
        return MaskResult(self._boxes.result(), self._masks.result())


def coco_masks(class_names: Sequence[str]) -> MaskEvaluator:
    return MaskEvaluator(DetectionEvaluator(class_names), ObjectMetric(class_names, MASKS))
