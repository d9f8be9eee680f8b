"""Whether two objects are compared by their boxes or by their masks."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from utils.boxes import pairwise_iou
from utils.detections import Detections, GroundTruth, Segmentations
from utils.masks import runs
from utils.ragged import Ragged


class Overlap(Protocol):
    """How large objects are, and how far they cover each other."""

    def area(self, found: Any) -> np.ndarray:
        """Return (K,) float64, square pixels, of what is found in an image."""

    def labelled_area(self, truth: GroundTruth) -> np.ndarray:
        """Return (M,) float64, square pixels, of objects whose labels tell none."""

    def iou(self, found: Any, truth: GroundTruth, is_crowd: np.ndarray) -> np.ndarray:
        """Return (K, M) float64 of pairs of one class; of others it may be 0.

        is_crowd: (M,) bool; with these it is the fraction of the detection that is covered.
        """


class _BoxOverlap:
    def area(self, found: Detections) -> np.ndarray:
        return _box_area(found.boxes_xyxy)

    def labelled_area(self, truth: GroundTruth) -> np.ndarray:
        return _box_area(truth.boxes_xyxy)

    def iou(self, found: Detections, truth: GroundTruth, is_crowd: np.ndarray) -> np.ndarray:
        return pairwise_iou(found.boxes_xyxy, truth.boxes_xyxy, is_crowd)


class _MaskOverlap:
    def area(self, found: Segmentations) -> np.ndarray:
        return runs.areas(found.masks)

    def labelled_area(self, truth: GroundTruth) -> np.ndarray:
        return runs.areas(_masks_of(truth))

    def iou(self, found: Segmentations, truth: GroundTruth, is_crowd: np.ndarray) -> np.ndarray:
        masks = _masks_of(truth)
        iou = np.zeros((len(found.scores), len(is_crowd)))
        for label in np.intersect1d(found.class_index, truth.class_index).tolist():
            row = np.flatnonzero(found.class_index == label)
            column = np.flatnonzero(truth.class_index == label)
            of_class = runs.iou(found.masks.take(row), masks.take(column), is_crowd[column])
            iou[np.ix_(row, column)] = of_class
        return iou


def _box_area(boxes_xyxy: np.ndarray) -> np.ndarray:
    size = boxes_xyxy[:, 2:].astype(np.float64) - boxes_xyxy[:, :2]
    return size[:, 0] * size[:, 1]


def _masks_of(truth: GroundTruth) -> Ragged:
    assert truth.masks is not None, "objects without masks"
    return truth.masks


BOXES, MASKS = _BoxOverlap(), _MaskOverlap()
