"""Doubtful labels of a dataset according to a model, ranked by score.

Each kind of finding has a score from 0 to 1:

- overlooked: the score of a detection that no label explains.
- swapped: the margin by which the best other class beats the label's own class, as used to rank
  errors in confident learning (Northcutt, Jiang and Chuang 2021, arXiv:1911.00068).
- misplaced: the margin by which the best detection shifted against a label beats the best one at
  its position.
- unseen: how far the log evidence for a label is below the expected value for its size and class:
  0 as expected, 1 the distance from certainty to nothing. The expected value is a linear fit over
  the size of all labels plus the mean residual of the label's class.

Source: kinds as in ObjectLab (Tkachenko, Thyagarajan and Mueller 2023, arXiv:2309.00832).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from duet.utils.evaluation.nms import SuppressionSettings, suppress_overlapping
from duet.utils.geometry.boxes import pairwise_iou
from duet.utils.geometry.detections import Detections, GroundTruth

KINDS = OVERLOOKED, UNSEEN, SWAPPED, MISPLACED = "overlooked", "unseen", "swapped", "misplaced"
# Lowest score worth a person's time, measured with planted errors: docs/en/data.md.
WORTH: Mapping[str, float] = {OVERLOOKED: 0.45, UNSEEN: 0.3, SWAPPED: 0.1, MISPLACED: 0.45}

LEAST_SCORE = 0.001  # lowest detection score, also for labels without other evidence
SMALLEST = 1e-6  # side of a label relative to its image's: keeps logarithms finite
FEW_LABELS = 5  # weight of the mean over all labels, in labels of the class
NOTHING = -1  # no label, or no class

FINDS, IS_NEAR, TOUCHES = 0.5, 0.3, 0.1  # IoU of a detection and a label
# A detection touching a label of its class is a shifted version of it if the best detection at the
# label's position scores below this fraction of its score; otherwise it is another object.
WEAK = 0.5
ONE_PLACE = 0.45  # IoU above which two detections of any classes show the same object


class Finding(NamedTuple):
    """A doubtful label, or a missing one."""

    kind: str
    score: float  # 0 to 1
    image: int  # sample index
    label: int = NOTHING  # row in the image's labels; NOTHING: no label
    seen_class: int = NOTHING  # detected class; NOTHING: none
    confidence: float = math.nan  # detection score
    seen_xyxy: tuple[float, ...] = ()  # detected box, pixels; empty: none


class Evidence(NamedTuple):
    """Evidence of one image's detections about its M labels: highest scores, 0 if none.

    Arrays are (M,): float64 scores, int64 rows of detections.
    """

    own: np.ndarray  # same class, finding the label
    near: np.ndarray  # same class, near the label
    anything: np.ndarray  # any class near it, or same class touching it
    other: np.ndarray  # another class, finding it and no label of their own class
    other_row: np.ndarray
    shifted: np.ndarray  # same class, finding no label, with this one overlapping most
    shifted_row: np.ndarray
    left_over: np.ndarray  # (J,) detections that no label explains, one per place


def examine(found: Detections, labels: GroundTruth) -> Evidence:
    """Compare the detections of one image with its labels.

    Args:
        found: highest score first; a box occurs once per candidate class.
        labels: same class numbers, boxes in the same frame.
    """
    if not len(found.scores):
        none, nowhere = np.zeros(len(labels.class_index)), np.zeros(0, np.int64)
        rows = none.astype(np.int64)
        return Evidence(none, none, none, none, rows, none, rows, nowhere)
    scores = found.scores.astype(np.float64)[:, None]
    iou = pairwise_iou(found.boxes_xyxy, labels.boxes_xyxy)
    same = found.class_index[:, None] == labels.class_index
    finds, is_near, touches = (iou >= least for least in (FINDS, IS_NEAR, TOUCHES))
    best_same = np.where(same, iou, 0).max(axis=1, keepdims=True, initial=0)
    is_free = best_same < FINDS
    other = np.where(~same & finds & is_free, scores, 0)
    shifted = np.where(same & touches & is_free & (iou >= best_same), scores, 0)
    own = np.where(same & finds, scores, 0).max(axis=0)
    explained = finds | (same & touches & (own < WEAK * scores))
    left_over = np.flatnonzero(~explained.any(axis=1))
    numbered = found.take(left_over)._replace(class_index=left_over)
    one_a_place = SuppressionSettings(
        iou_threshold=ONE_PLACE, class_agnostic=True, max_detections=len(left_over)
    )
    return Evidence(
        own,
        np.where(same & is_near, scores, 0).max(axis=0),
        np.where(is_near | (same & touches), scores, 0).max(axis=0),
        other.max(axis=0),
        other.argmax(axis=0),
        shifted.max(axis=0),
        shifted.argmax(axis=0),
        suppress_overlapping(numbered, one_a_place).class_index,
    )


class Auditor:
    """Collect findings from images, in any order.

    Args:
        lowest: minimum score of the findings to keep, by kind.
        is_known: (C,) bool, classes the model was trained for; labels of others are skipped.
    """

    def __init__(self, lowest: Mapping[str, float], is_known: np.ndarray) -> None:
        self._lowest, self._is_known = lowest, is_known
        self._findings: list[Finding] = []
        # Per label: image, row, class, logarithms of its evidence and side.
        self._doubts: list[np.ndarray] = [np.zeros((0, 5))]

    def add(
        self, image_index: int, found: Detections, labels: GroundTruth, size: tuple[int, int]
    ) -> None:
        """Add an image.

        Args:
            found: detections above `LEAST_SCORE`, highest score first, a box once per candidate
                class; image pixels.
            labels: same class numbers.
            size: (height, width) of the image.
        """
        evidence = examine(found, labels)
        rows = np.flatnonzero(self._is_known[labels.class_index])
        left_over, nothing = evidence.left_over, np.full(len(evidence.left_over), NOTHING)
        swapped, misplaced = evidence.other - evidence.near, evidence.shifted - evidence.own
        for kind, scores, label_rows, seen_rows in (
            (OVERLOOKED, found.scores[left_over].astype(np.float64), nothing, left_over),
            (SWAPPED, swapped[rows], rows, evidence.other_row[rows]),
            (MISPLACED, misplaced[rows], rows, evidence.shifted_row[rows]),
        ):
            for index in np.flatnonzero((scores > 0) & (scores >= self._lowest[kind])).tolist():
                seen = int(seen_rows[index])
                label, seen_class = int(label_rows[index]), int(found.class_index[seen])
                suggested = float(found.scores[seen]), tuple(found.boxes_xyxy[seen].tolist())
                finding = Finding(
                    kind, float(scores[index]), image_index, label, seen_class, *suggested
                )
                self._findings.append(finding)
        boxes = labels.boxes_xyxy[rows]
        side = np.sqrt((boxes[:, 2:] - boxes[:, :2]).clip(0).prod(axis=1)) / max(size)
        logs = np.log(evidence.anything[rows] + LEAST_SCORE), np.log(np.maximum(side, SMALLEST))
        image = np.full(len(rows), image_index)
        self._doubts.append(np.column_stack([image, rows, labels.class_index[rows], *logs]))

    def result(self) -> list[Finding]:
        """Return the findings of all images by kind, then by descending score."""
        doubts = np.concatenate(self._doubts)
        image, label, class_index = doubts[:, :3].astype(np.int64).T
        scores = unseen_scores(doubts[:, 3], doubts[:, 4], class_index)
        unseen = [
            Finding(UNSEEN, float(scores[row]), int(image[row]), int(label[row]))
            for row in np.flatnonzero((scores > 0) & (scores >= self._lowest[UNSEEN])).tolist()
        ]
        return sorted(
            [*self._findings, *unseen],
            key=lambda x: (KINDS.index(x.kind), -x.score, x.image, x.label),
        )


def unseen_scores(evidence: np.ndarray, size: np.ndarray, class_index: np.ndarray) -> np.ndarray:
    """Return how far each label's evidence is below the expected value, from 0 to 1.

    Args:
        evidence, size: (M,) logarithms.
        class_index: (M,) non-negative integers.
    """
    if not len(evidence):
        return np.zeros(0)
    evidence, size = evidence.astype(np.float64), size.astype(np.float64)
    apart, variance = size - size.mean(), size.var()
    slope = float((apart * evidence).mean() / variance) if variance > SMALLEST else 0.0
    above = evidence - evidence.mean() - slope * apart
    usual = np.bincount(class_index, above) / (np.bincount(class_index) + FEW_LABELS)
    widest = math.log((1 + LEAST_SCORE) / LEAST_SCORE)
    return ((usual[class_index] - above) / widest).clip(0, 1)
