"""Counts of a confusion matrix: how often each class is detected as each class."""

from dataclasses import dataclass

import numpy as np

from duet.utils.geometry.boxes import pairwise_iou
from duet.utils.geometry.detections import Detections, GroundTruth, Segmentations

# As in the public YOLOv5: no other confidence reproduces its stored matrix.
IOU_ABOVE = 0.45
CONFIDENCE_ABOVE = 0.25


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each true class was detected as each predicted class; class C is background.

    Missed objects are predicted as background, false detections are truly background. Only pairs
    that occur are stored: there may be thousands of classes.
    """

    num_classes: int
    predicted: np.ndarray  # (P,) int64
    true: np.ndarray  # (P,) int64
    counts: np.ndarray  # (P,) int64, above 0

    def matrix(self) -> np.ndarray:
        """Return (C + 1, C + 1) int64 counts, row per predicted and column per true class."""
        matrix = np.zeros((self.num_classes + 1, self.num_classes + 1), np.int64)
        matrix[self.predicted, self.true] = self.counts
        return matrix


def confusion_of(num_classes: int, predicted: np.ndarray, true: np.ndarray) -> Confusion:
    """Count pairs of predicted and true classes, (N,) int64 each."""
    pairs, counts = np.unique(predicted * (num_classes + 1) + true, return_counts=True)
    return Confusion(num_classes, *np.divmod(pairs, num_classes + 1), counts)


class ConfusionCounter:
    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        # (2, N) predicted and true classes per image.
        self._seen: list[np.ndarray] = [np.zeros((2, 0), np.int64)]

    def add(self, found: Detections | Segmentations, truth: GroundTruth) -> None:
        """Count an image.

        Detections and objects of any class are matched greedily by descending overlap. Crowds are
        not objects, and detections on a crowd count only if they match an object.
        """
        background = self.num_classes
        rows = np.flatnonzero(found.scores > CONFIDENCE_ABOVE)
        predicted, is_crowd = found.class_index[rows], truth.is_crowd
        if is_crowd is None:
            is_crowd = np.zeros(len(truth.class_index), bool)
        iou = pairwise_iou(found.boxes_xyxy[rows], truth.boxes_xyxy, is_crowd)
        as_class = np.full(len(is_crowd), background)
        is_alarm = ~(iou[:, is_crowd] > IOU_ABOVE).max(axis=1, initial=False)
        is_missed, is_left = ~is_crowd, np.ones(len(rows), bool)
        row, column = np.nonzero(iou > IOU_ABOVE)
        best_first = np.argsort(-iou[row, column], kind="stable")
        for one, other in zip(row[best_first].tolist(), column[best_first].tolist(), strict=True):
            if is_missed[other] and is_left[one]:
                is_missed[other] = is_left[one] = is_alarm[one] = False
                as_class[other] = predicted[one]
        alarms = predicted[is_alarm]
        pairs = (
            np.concatenate((as_class[~is_crowd], alarms)),
            np.concatenate((truth.class_index[~is_crowd], np.full(len(alarms), background))),
        )
        self._seen.append(np.stack(pairs).astype(np.int64))

    def result(self) -> Confusion:
        return confusion_of(self.num_classes, *np.concatenate(self._seen, axis=1))
