"""Detections and labelled objects of an image, which evaluation and data share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Detections(NamedTuple):
    """What was found in one image, highest score first."""

    boxes_xyxy: np.ndarray  # (K, 4) float32, pixels
    scores: np.ndarray  # (K,) float32, objectness * class score
    class_index: np.ndarray  # (K,) int64

    def take(self, rows: np.ndarray) -> Detections:
        """Return the detections at these rows, in the order of the rows."""
        return Detections(*(field[rows] for field in self))


class GroundTruth(NamedTuple):
    """The objects labelled in one image.

    YOLO labels have neither crowds nor outlines: nothing is a crowd then, and the area is the
    box's. COCO's annotations give the area of the outline.
    """

    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float, pixels of the frame that the detections are in
    is_crowd: np.ndarray | None = None  # (M,) bool, boxes around many objects; none when None
    area: np.ndarray | None = None  # (M,) float64, square pixels; of the boxes when None


@dataclass(frozen=True)
class SuppressionSettings:
    """The arguments of `utils/evaluation/nms.py::non_max_suppression` that flags set.

    Its docstring explains them.
    """

    confidence_threshold: float = 0.001
    iou_threshold: float = 0.6
    class_agnostic: bool = False
    classes: tuple[int, ...] | None = None
    max_detections: int = 300
    multi_label: bool = True
