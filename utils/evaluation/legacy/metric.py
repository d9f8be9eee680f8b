"""The metric as YOLOv5 prints it, for comparing with old logs.

Before: `matching.py`, image by image. After: `report/console.py`.
It is not COCO's, which utils/evaluation/coco/metric.py measures; docs/en/accuracy.md says what
differs. Written from figures that YOLOv5 gave for stored inputs: matching.py and
curves.py name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from utils.detections import GroundTruth
from utils.evaluation.legacy.curves import measure_classes
from utils.evaluation.legacy.matching import Claims, claim_objects, grant_claims, join_claims
from utils.evaluation.overlap import BOXES, Overlap


@dataclass(frozen=True, eq=False)
class LegacyResult:
    """YOLOv5's figures of a set of images, by class and over all.

    As in EvaluationResult, classes without ground truth are NaN in every per-class array and left
    out of the means; if no class has any, the means are 0. Crowds are no ground truth.
    """

    class_names: tuple[str, ...]
    num_images: int
    num_ground_truth: np.ndarray  # (C,) int64 objects
    precision: np.ndarray  # (C,) float64, at IoU 0.50 and one confidence for all classes
    recall: np.ndarray  # (C,) float64, likewise
    average_precision: np.ndarray  # (C, 10) float64: class, IOU_THRESHOLDS

    @property
    def ap50(self) -> np.ndarray:
        """(C,) average precision at IoU 0.50."""
        return self.average_precision[:, 0]

    @property
    def ap(self) -> np.ndarray:
        """(C,) average precision over IoU 0.50 to 0.95."""
        return self.average_precision.mean(axis=1)

    @property
    def mean_precision(self) -> float:
        """Mean of `precision` over the classes with ground truth, "P" of the logs."""
        return self._mean(self.precision)

    @property
    def mean_recall(self) -> float:
        """Mean of `recall` over the classes with ground truth, "R" of the logs."""
        return self._mean(self.recall)

    @property
    def map50(self) -> float:
        """Mean average precision at IoU 0.50."""
        return self._mean(self.ap50)

    @property
    def map(self) -> float:
        """Mean average precision over IoU 0.50 to 0.95."""
        return self._mean(self.ap)

    def _mean(self, per_class: np.ndarray) -> float:
        evaluated = per_class[self.num_ground_truth > 0]
        return float(evaluated.mean()) if len(evaluated) else 0.0


class LegacyEvaluator:
    """What is found and what is labelled, added image by image and measured together.

    Args:
        overlap: what of the objects is compared.
    """

    def __init__(self, class_names: Sequence[str], overlap: Overlap = BOXES) -> None:
        self.class_names, self._overlap = tuple(class_names), overlap
        self._images: dict[int, Claims] = {}

    def add(self, image_id: int, found: Any, ground_truth: GroundTruth) -> None:
        """Add one image; both arguments in the same frame, once for each image_id.

        Unlike in COCO's metric all detections count, however many. The order of the calls does not
        matter: detections of equal score in different images are ranked by image_id.
        """
        assert image_id not in self._images, f"image {image_id} was added before"
        self._images[image_id] = claim_objects(found, ground_truth, self._overlap)

    def result(self) -> LegacyResult:
        """Return the measures of everything added so far."""
        claims = join_claims([self._images[image_id] for image_id in sorted(self._images)])
        num_ground_truth = np.bincount(claims.object_class_index, minlength=len(self.class_names))
        figures = measure_classes(
            claims.scores, claims.class_index, grant_claims(claims), num_ground_truth
        )
        return LegacyResult(
            self.class_names, len(self._images), num_ground_truth, **figures._asdict()
        )
