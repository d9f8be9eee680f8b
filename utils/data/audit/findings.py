"""All images: what a model says about the labels of a dataset, ranked by how sure it is.

Before: `evidence.py`, image by image. After: `table.py` and `page.py`.

Each kind of finding has a score from 0 to 1.

- overlooked: the score of a detection that no label explains.
- swapped: by how much the best other class of a label's object leads its own class. It is the
  margin by which confident learning ranks errors (Northcutt, Jiang and Chuang 2021,
  arXiv:1911.00068).
- misplaced: by how much the best detection that is shifted against a label leads the best one that
  finds it where it is.
- unseen: how far the evidence for a label is below what is usual for its size and class, in
  logarithms: 0 as usual, 1 as far as from certainty to nothing. What is small, or of a hard class,
  is always seen badly, so a low score by itself says little about a label. Confident learning too
  asks more of a class that the model is sure of. What is usual is a straight line over the size
  through all labels, and for each class the mean distance of its labels from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from utils.data.audit.evidence import LabelEvidence, examine
from utils.detections import Detections, GroundTruth

KINDS = OVERLOOKED, UNSEEN, SWAPPED, MISPLACED = "overlooked", "unseen", "swapped", "misplaced"

LEAST_SCORE = 0.001  # of a detection; a label with no other evidence has this
SMALLEST = 1e-6  # side of a label, of its image's: keeps logarithms finite
FEW_LABELS = 5  # of a class: the mean of all labels counts as much as theirs
NOTHING = -1  # in place of a label, or of a class


class Findings(NamedTuple):
    """What is doubtful about the labels, F times."""

    image_index: np.ndarray  # (F,) int64, into the samples
    kind: np.ndarray  # (F,) int64, into KINDS
    scores: np.ndarray  # (F,) float64 in [0, 1], how sure the model is
    label_index: np.ndarray  # (F,) int64, row of the image's labels; NOTHING: there is no label
    class_index: np.ndarray  # (F,) int64, what the model sees there; NOTHING: it sees nothing
    confidence: np.ndarray  # (F,) float64, its score for that; NaN
    boxes_xyxy: np.ndarray  # (F, 4) float64, where it sees it, pixels; NaN

    def take(self, rows: np.ndarray) -> Findings:
        """Return the findings at these rows, in the order of the rows."""
        return Findings(*(field[rows] for field in self))

    def of_kind(self, kind: str) -> Findings:
        """Return those of a kind, in their order."""
        return self.take(np.flatnonzero(self.kind == KINDS.index(kind)))


class _Doubt(NamedTuple):
    """Labels of all images that might be unseen: their evidence, until all of it is known."""

    image_index: np.ndarray  # (M,) int32
    label_index: np.ndarray  # (M,) int32
    class_index: np.ndarray  # (M,) int32
    evidence: np.ndarray  # (M,) float32, logarithm
    size: np.ndarray  # (M,) float32, logarithm of its side, of the image's long side


class Auditor:
    """Takes images one at a time, in any order; what it keeps of a label is 20 bytes.

    Args:
        lowest: the score that a finding of each kind must have to be kept.
        is_known: (C,) bool, the classes that the model was trained for; labels of others are not
            judged.
    """

    def __init__(self, lowest: Mapping[str, float], is_known: np.ndarray) -> None:
        self._lowest, self._is_known = lowest, is_known
        self._findings = [_none()]
        self._doubts: list[_Doubt] = []

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
        evidence, left_over = examine(found, labels)
        rows = np.flatnonzero(self._is_known[labels.class_index])
        scores = found.scores.astype(np.float64)
        swapped = evidence.other - evidence.near
        misplaced = evidence.shifted - evidence.own
        nothing = np.full(len(left_over), NOTHING)
        for kind, kind_scores, label_index, seen in (
            (OVERLOOKED, scores[left_over], nothing, left_over),
            (SWAPPED, swapped[rows], rows, evidence.other_row[rows]),
            (MISPLACED, misplaced[rows], rows, evidence.shifted_row[rows]),
        ):
            self._keep(image_index, kind, kind_scores, label_index, found, seen)
        self._doubts.append(_doubt(image_index, evidence, labels, rows, max(size)))

    def _keep(
        self,
        image_index: int,
        kind: str,
        scores: np.ndarray,
        label_index: np.ndarray,
        found: Detections,
        seen: np.ndarray,
    ) -> None:
        kept = np.flatnonzero((scores > 0) & (scores >= self._lowest[kind]))
        if len(kept):
            self._findings.append(
                Findings(
                    np.full(len(kept), image_index),
                    np.full(len(kept), KINDS.index(kind)),
                    scores[kept],
                    label_index[kept],
                    found.class_index[seen[kept]],
                    found.scores[seen[kept]].astype(np.float64),
                    found.boxes_xyxy[seen[kept]].astype(np.float64),
                )
            )

    def result(self) -> Findings:
        """Return the findings of all images, by kind and then by score, the highest first."""
        doubts = _Doubt(*map(np.concatenate, zip(_no_doubt(), *self._doubts, strict=True)))
        scores = unseen_scores(doubts.evidence, doubts.size, doubts.class_index)
        kept = np.flatnonzero((scores > 0) & (scores >= self._lowest[UNSEEN]))
        unseen = Findings(
            doubts.image_index[kept].astype(np.int64),
            np.full(len(kept), KINDS.index(UNSEEN)),
            scores[kept],
            doubts.label_index[kept].astype(np.int64),
            np.full(len(kept), NOTHING),
            np.full(len(kept), np.nan),
            np.full((len(kept), 4), np.nan),
        )
        parts = zip(*self._findings, unseen, strict=True)
        findings = Findings(*map(np.concatenate, parts))
        order = (findings.label_index, findings.image_index, -findings.scores, findings.kind)
        return findings.take(np.lexsort(order))


def _doubt(
    image_index: int,
    evidence: LabelEvidence,
    labels: GroundTruth,
    rows: np.ndarray,
    long_side: int,
) -> _Doubt:
    boxes = labels.boxes_xyxy[rows]
    side = np.sqrt((boxes[:, 2:] - boxes[:, :2]).clip(0).prod(axis=1)) / long_side
    return _Doubt(
        np.full(len(rows), image_index, np.int32),
        rows.astype(np.int32),
        labels.class_index[rows].astype(np.int32),
        np.log(evidence.anything[rows] + LEAST_SCORE).astype(np.float32),
        np.log(np.maximum(side, SMALLEST)).astype(np.float32),
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


def _none() -> Findings:
    whole, real = np.zeros(0, np.int64), np.zeros(0)
    return Findings(whole, whole, real, whole, whole, real, np.zeros((0, 4)))


def _no_doubt() -> _Doubt:
    whole, real = np.zeros(0, np.int32), np.zeros(0, np.float32)
    return _Doubt(whole, whole, whole, real, real)
