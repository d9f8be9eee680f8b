"""What a model says about the labels of a dataset, ranked by how sure it is.

Each kind of finding has a score from 0 to 1.

- overlooked: the score of a detection that no label explains.
- swapped: by how much the best other class of a label's object leads its own class. It is the
  margin by which confident learning ranks errors (Northcutt, Jiang and Chuang 2021,
  arXiv:1911.00068).
- misplaced: by how much the best detection that is shifted against a label leads the best one that
  finds it where it is.
- unseen: how far the evidence for a label is below what is usual for its size and class, in
  logarithms: 0 as usual, 1 as far as from certainty to nothing. What is usual is a straight line
  over the size through all labels, and for each class the mean distance of its labels from it.

Source: the kinds are those that ObjectLab tells apart (Tkachenko, Thyagarajan and Mueller 2023,
arXiv:2309.00832).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from duet.utils.boxes import pairwise_iou
from duet.utils.detections import Detections, GroundTruth
from duet.utils.evaluation.nms import SuppressionSettings, suppress_overlapping

KINDS = OVERLOOKED, UNSEEN, SWAPPED, MISPLACED = "overlooked", "unseen", "swapped", "misplaced"
# The lowest score worth a person's time, measured with planted errors: docs/en/data.md.
WORTH: Mapping[str, float] = {OVERLOOKED: 0.45, UNSEEN: 0.3, SWAPPED: 0.1, MISPLACED: 0.45}

LEAST_SCORE = 0.001  # of a detection; a label with no other evidence has this
SMALLEST = 1e-6  # side of a label, of its image's: keeps logarithms finite
FEW_LABELS = 5  # of a class: the mean of all labels counts as much as theirs
NOTHING = -1  # in place of a label, or of a class

FINDS, IS_NEAR, TOUCHES = 0.5, 0.3, 0.1  # IoU of a detection and a label
# A detection that touches a label of its class is that label, shifted, if what finds the label
# where it is has less than this part of its score. Else it is another object beside that one.
WEAK = 0.5
ONE_PLACE = 0.45  # IoU above which two detections are of one object, whatever their classes


class Finding(NamedTuple):
    """Something doubtful about the labels."""

    kind: str
    score: float  # how sure the model is
    image: int  # number of the sample
    label: int = NOTHING  # row of the image's labels; NOTHING: there is no label
    seen_class: int = NOTHING  # what the model sees there; NOTHING: it sees nothing
    confidence: float = math.nan  # its score for that
    seen_xyxy: tuple[float, ...] = ()  # where it sees it, pixels; empty: nowhere


class Evidence(NamedTuple):
    """What the detections of one image say of its M labels: highest scores, 0 where there is none.

    Columns are float64 for scores and int64 for rows of detections, (M,).
    """

    own: np.ndarray  # of its class, which find it
    near: np.ndarray  # of its class, near it
    anything: np.ndarray  # of any class near it, or of its class and touching it
    other: np.ndarray  # of another class, which find it and no label of theirs
    other_row: np.ndarray
    shifted: np.ndarray  # of its class; they find no label, and touch this one most
    shifted_row: np.ndarray
    left_over: np.ndarray  # (J,) detections that no label explains, one for each place


def examine(found: Detections, labels: GroundTruth) -> Evidence:
    """Compare the detections of one image with its labels.

    Args:
        found: highest score first; a box occurs once for each class that it may be of.
        labels: with classes of the same numbers, boxes in the same frame.
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
    """Takes images one at a time, in any order.

    Args:
        lowest: the score that a finding of each kind must have to be kept.
        is_known: (C,) bool, the classes that the model was trained for; labels of others are not
            judged.
    """

    def __init__(self, lowest: Mapping[str, float], is_known: np.ndarray) -> None:
        self._lowest, self._is_known = lowest, is_known
        self._findings: list[Finding] = []
        # Of each label: image, row, class, logarithms of its evidence and of its side.
        self._doubts: list[np.ndarray] = [np.zeros((0, 5), np.float32)]

    def add(
        self, image_index: int, found: Detections, labels: GroundTruth, size: tuple[int, int]
    ) -> None:
        """Take an image.

        Args:
            found: above `LEAST_SCORE`, highest score first, a box once for each class that it may
                be of; pixels of the image.
            labels: with classes of the same numbers.
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
        doubt = np.column_stack([image, rows, labels.class_index[rows], *logs])
        self._doubts.append(doubt.astype(np.float32))

    def result(self) -> list[Finding]:
        """Return the findings of all images, by kind and then by score, the highest first."""
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
    """Return how far each label's evidence is below what is usual, from 0 to 1.

    Args:
        evidence, size: (M,) logarithms.
        class_index: (M,) whole numbers from 0 up.
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
