"""The counts of a confusion matrix: how often each class is detected as each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from utils.boxes import pairwise_iou
from utils.detections import Detections, GroundTruth, Segmentations

# Those of the public YOLOv5: a matrix stored of it is met by no other confidence.
IOU_ABOVE = 0.45
CONFIDENCE_ABOVE = 0.25


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each true class was detected as each predicted class; class C is the background.

    An object that nothing finds is predicted as background, a detection that finds nothing is truly
    background. Only what occurs is kept: there may be thousands of classes.
    """

    num_classes: int
    predicted: np.ndarray  # (P,) int64
    true: np.ndarray  # (P,) int64
    counts: np.ndarray  # (P,) int64, above 0

    def matrix(self, classes: Sequence[int] | None = None) -> np.ndarray:
        """Return (K + 1, K + 1) int64 counts, row per predicted and column per true class.

        Args:
            classes: K of them, in this order; None for all. If there are others, these are one
                more row and column together, before the background's.
        """
        classes = range(self.num_classes) if classes is None else classes
        size = len(classes) + (len(classes) < self.num_classes) + 1
        places = np.full(self.num_classes + 1, len(classes))
        places[[*classes, self.num_classes]] = [*range(len(classes)), size - 1]
        matrix = np.zeros((size, size), np.int64)
        np.add.at(matrix, (places[self.predicted], places[self.true]), self.counts)
        return matrix


class ConfusionCounter:
    """Counts image by image, in any order."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        self._seen: list[np.ndarray] = []  # of each image, one number for each pair of classes

    def add(self, found: Detections | Segmentations, truth: GroundTruth) -> None:
        """Count an image.

        Of all pairs of a detection and an object, whatever their classes, the one that overlaps
        most is a match; then the one of those left, and so on. Crowds are no objects, and what lies
        on one counts only if it finds an object.
        """
        background = self.num_classes
        rows = np.flatnonzero(found.scores > CONFIDENCE_ABOVE)
        boxes_xyxy, predicted = found.boxes_xyxy[rows], found.class_index[rows]
        is_crowd = truth.is_crowd
        if is_crowd is None:
            is_crowd = np.zeros(len(truth.class_index), bool)
        iou = pairwise_iou(boxes_xyxy, truth.boxes_xyxy, is_crowd)
        matched, of_object = _match(np.where(is_crowd, 0, iou))
        as_class = np.full(len(is_crowd), background)
        as_class[of_object] = predicted[matched]
        is_alarm = np.all(iou[:, is_crowd] <= IOU_ABOVE, axis=1, keepdims=True)[:, 0]
        is_alarm[matched] = False
        alarms = predicted[is_alarm]
        pairs = (
            np.concatenate((as_class[~is_crowd], alarms)),
            np.concatenate((truth.class_index[~is_crowd], np.full(len(alarms), background))),
        )
        self._seen.append(pairs[0].astype(np.int64) * (background + 1) + pairs[1])

    def result(self) -> Confusion:
        """Return the counts of all images so far."""
        pairs, counts = np.unique(
            np.concatenate([np.zeros(0, np.int64), *self._seen]), return_counts=True
        )
        predicted, true = np.divmod(pairs, self.num_classes + 1)
        return Confusion(self.num_classes, predicted, true, counts)


def _match(iou: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which row and which column of (N, M) are matched, pair by pair.

    A pair that comes first for its row and for its column, from the highest overlap down, is what
    choosing one pair after the other would choose too.
    """
    row, column = np.nonzero(iou > IOU_ABOVE)
    order = np.argsort(-iou[row, column], kind="stable")
    row, column = row[order], column[order]
    rows, columns = [row[:0]], [column[:0]]
    is_free = np.ones(len(iou), bool), np.ones(iou.shape[1], bool)
    while len(row):
        is_match = _is_first(row) & _is_first(column)
        rows.append(row[is_match])
        columns.append(column[is_match])
        is_free[0][rows[-1]] = is_free[1][columns[-1]] = False
        left = is_free[0][row] & is_free[1][column]
        row, column = row[left], column[left]
    return np.concatenate(rows), np.concatenate(columns)


def _is_first(values: np.ndarray) -> np.ndarray:
    """Return (N,) bool: which values, from 0 up, occur for the first time."""
    position = np.arange(len(values))
    first = np.full(values.max(initial=-1) + 1, -1)
    first[values[::-1]] = position[::-1]  # of equal places the last assignment stays
    return first[values] == position
