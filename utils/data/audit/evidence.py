"""One image: what the detections of a model say for and against each label, and what is left over.

Before: detections with a score threshold near 0, because even a score of a thousandth says more
than none. After: `findings.py`.

Source: objects overlooked, classes swapped and boxes badly located are the errors that ObjectLab
tells apart (Tkachenko, Thyagarajan and Mueller 2023, arXiv:2309.00832).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from utils.boxes import pairwise_iou
from utils.detections import Detections, GroundTruth
from utils.evaluation.nms import SuppressionSettings, suppress_overlapping

# IoU of a detection and a label.
FINDS = 0.5
IS_NEAR = 0.3
TOUCHES = 0.1

# A detection that touches a label of its class is that label, shifted, if what finds the label
# where it is has less than this part of its score. Else it is another object beside that one.
WEAK = 0.5
ONE_PLACE = 0.45  # IoU above which two detections are of one object, whatever their classes
PAIRS = 1 << 22  # of a detection and a label, compared at once; tens of MiB


class LabelEvidence(NamedTuple):
    """The highest scores of detections around each of M labels, 0 where there is none."""

    own: np.ndarray  # (M,) float64, of its class, which find it
    near: np.ndarray  # (M,) float64, of its class, near it
    anything: np.ndarray  # (M,) float64, of any class near it, or of its class and touching it
    other: np.ndarray  # (M,) float64, of another class, which find it and no label of theirs
    other_row: np.ndarray  # (M,) int64, that detection
    shifted: np.ndarray  # (M,) float64, of its class; they find no label, and touch this one most
    shifted_row: np.ndarray  # (M,) int64, that detection


class Evidence(NamedTuple):
    """What an image's detections say of its labels."""

    labels: LabelEvidence
    left_over: np.ndarray  # (J,) int64, detections that no label explains, one for each place


class _Pairs(NamedTuple):
    """K detections and some of the labels."""

    iou: np.ndarray  # (K, B) float64
    same: np.ndarray  # (K, B) bool, of one class

    def of_class(self) -> np.ndarray:
        """Return the IoU of pairs of one class, 0 of others."""
        return np.where(self.same, self.iou, 0)


def examine(found: Detections, labels: GroundTruth) -> Evidence:
    """Compare the detections of one image with its labels.

    Args:
        found: highest score first; a box occurs once for each class that it may be of.
        labels: with classes of the same numbers, boxes in the same frame.
    """
    if not len(found.scores):
        return _nothing_found(len(labels.class_index))
    scores = found.scores.astype(np.float64)[:, None]
    best_same = np.zeros((len(scores), 1))
    is_explained = np.zeros(len(scores), bool)
    for pairs in _blocks(found, labels):
        best_same = np.maximum(best_same, pairs.of_class().max(axis=1, keepdims=True, initial=0))
        is_explained |= (pairs.iou >= FINDS).any(axis=1)
    parts = []
    for pairs in _blocks(found, labels):
        parts.append(_of_labels(pairs, scores, best_same))
        is_its_own = pairs.same & (pairs.iou >= TOUCHES) & (parts[-1].own < WEAK * scores)
        is_explained |= is_its_own.any(axis=1)
    joined = LabelEvidence(*map(np.concatenate, zip(*parts, strict=True)))
    return Evidence(joined, _one_a_place(found, np.flatnonzero(~is_explained)))


def _nothing_found(num_labels: int) -> Evidence:
    nothing, nowhere = np.zeros(num_labels), np.zeros(num_labels, np.int64)
    labels = LabelEvidence(nothing, nothing, nothing, nothing, nowhere, nothing, nowhere)
    return Evidence(labels, np.zeros(0, np.int64))


def _blocks(found: Detections, labels: GroundTruth) -> Iterator[_Pairs]:
    """Yield all pairs, some labels after the other: memory is bounded, however many there are."""
    step = max(PAIRS // len(found.scores), 1)
    for start in range(0, max(len(labels.class_index), 1), step):
        rows = slice(start, start + step)
        iou = pairwise_iou(found.boxes_xyxy, labels.boxes_xyxy[rows])
        yield _Pairs(iou, found.class_index[:, None] == labels.class_index[rows])


def _of_labels(pairs: _Pairs, scores: np.ndarray, best_same: np.ndarray) -> LabelEvidence:
    """Return the evidence for some labels.

    Args:
        scores: (K, 1) of the detections.
        best_same: (K, 1) their highest IoU with a label of their class.
    """
    iou, same = pairs
    finds, is_near, touches = (iou >= least for least in (FINDS, IS_NEAR, TOUCHES))
    is_free = best_same < FINDS
    other = np.where(~same & finds & is_free, scores, 0)
    shifted = np.where(same & touches & is_free & (iou >= best_same), scores, 0)
    return LabelEvidence(
        own=np.where(same & finds, scores, 0).max(axis=0),
        near=np.where(same & is_near, scores, 0).max(axis=0),
        anything=np.where(is_near | (same & touches), scores, 0).max(axis=0),
        other=other.max(axis=0),
        other_row=other.argmax(axis=0),
        shifted=shifted.max(axis=0),
        shifted_row=shifted.argmax(axis=0),
    )


def _one_a_place(found: Detections, rows: np.ndarray) -> np.ndarray:
    """Return the best detection for each place, rows ascending, scores descending."""
    numbered = found.take(rows)._replace(class_index=rows)
    settings = SuppressionSettings(
        iou_threshold=ONE_PLACE, class_agnostic=True, max_detections=len(rows)
    )
    return suppress_overlapping(numbered, settings).class_index
