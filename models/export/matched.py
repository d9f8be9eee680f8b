"""What a file finds, and what the model finds: pairs of the same thing, and what lacks a partner.

Before: `verify.py` ran both on the same images. After: the file's line on screen, or its fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from models.export.compared import Tolerance
from utils.boxes import pairwise_iou
from utils.cli.export_config import ExportConfig
from utils.detections import Detections
from utils.evaluation.nms import SuppressionSettings, best_rows

# Pixels: of narrower boxes the IoU may be 0 or 1, as a step of float32 moves an edge (1.5e-5 px at
# 200 px, some of them after the layers).
THIN = 1e-3


class Limits(NamedTuple):
    """What NMS keeps, in the graph or behind it."""

    settings: SuppressionSettings
    top_per_class: int  # with `class_agnostic` there is no such limit

    @classmethod
    def of(cls, config: ExportConfig) -> Limits:
        settings = config.suppression
        return cls(
            settings, settings.max_detections if settings.class_agnostic else config.top_per_class
        )


def find(rows: np.ndarray, limits: Limits) -> Detections:
    """Return what NMS finds in the rows (N, 5 + C) of one image."""
    return find_rows(rows, limits)[0]


def find_rows(rows: np.ndarray, limits: Limits) -> tuple[Detections, np.ndarray]:
    """Return what NMS finds in the rows (N, 5 + C) of one image, and the row of each."""
    settings = limits.settings
    # As many as there are, so that those of one class do not keep another's away.
    found, index = best_rows(rows, replace(settings, max_detections=max(len(rows), 1)))
    kept = np.flatnonzero(_rank_in_class(found.class_index) < limits.top_per_class)
    kept = kept[: settings.max_detections]
    return found.take(kept), index[kept]


def _rank_in_class(class_index: np.ndarray) -> np.ndarray:
    """Return for each number how many equal ones stand before it."""
    order = np.argsort(class_index, kind="stable")
    ranked = class_index[order]
    starts = np.searchsorted(ranked, ranked)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order)) - starts
    return ranks


def match(found: Detections, expected: Detections, tolerance: Tolerance) -> np.ndarray:
    """Return (K, 2) places of the same thing in `found` and `expected`, each place once."""
    free = np.ones(len(found.scores), bool)
    pairs = []
    for place in range(len(expected.scores)):
        alike = np.abs(found.scores - expected.scores[place]) <= tolerance.scores
        same = free & alike & (found.class_index == expected.class_index[place])
        distance = np.abs(found.boxes_xyxy - expected.boxes_xyxy[place]).max(axis=1)
        same &= (distance <= tolerance.pixels) | (overlap(expected, place, found) > tolerance.iou)
        if same.any():
            best = int(np.where(same, distance, np.inf).argmin())
            free[best] = False
            pairs.append((best, place))
    return np.array(pairs, np.int64).reshape(-1, 2)


def overlap(one: Detections, place: int, others: Detections) -> np.ndarray:
    """Return the IoU of one thing with each of the others."""
    iou: np.ndarray = pairwise_iou(one.boxes_xyxy[place : place + 1], others.boxes_xyxy)[0]
    return iou


class Candidates(NamedTuple):
    """All that the model predicts in an image, before NMS."""

    boxes_xyxy: np.ndarray  # (N, 4)
    rows: np.ndarray  # (N, 5 + C)

    def hold(self, one: Detections, place: int, tolerance: Tolerance) -> bool:
        """Return whether this thing is among what the model predicts."""
        return len(self._rows_of(one, place, tolerance)) > 0

    def ties(self, one: Detections, place: int, tolerance: Tolerance) -> Iterator[Detections]:
        """Yield `one` with each other class that this thing may have: each score may be off."""
        class_index, near = int(one.class_index[place]), 2 * tolerance.scores
        is_place = np.arange(len(one.scores)) == place
        for row in self._rows_of(one, place, tolerance):
            scores = row[4] * row[5:]
            for other in np.flatnonzero(np.abs(scores - scores[class_index]) <= near).tolist():
                if other != class_index:
                    yield one._replace(
                        scores=np.where(is_place, scores[other], one.scores),
                        class_index=np.where(is_place, other, one.class_index),
                    )

    def _rows_of(self, one: Detections, place: int, tolerance: Tolerance) -> np.ndarray:
        """Return the rows (K, 5 + C) that predict this thing."""
        column = 5 + int(one.class_index[place])
        if not 5 <= column < self.rows.shape[1]:
            return self.rows[:0]
        scores = self.rows[:, 4] * self.rows[:, column]
        alike = np.flatnonzero(np.abs(scores - one.scores[place]) <= tolerance.scores)
        boxes_xyxy, own = self.boxes_xyxy[alike], one.boxes_xyxy[place : place + 1]
        same = np.abs(boxes_xyxy - own).max(axis=1) <= tolerance.pixels
        same |= pairwise_iou(own, boxes_xyxy)[0] > tolerance.iou
        return self.rows[alike[same]]


def fault_of(
    found: Detections,
    expected: Detections,
    candidates: Candidates,
    pairs: np.ndarray,
    limits: Limits,
    tolerance: Tolerance,
) -> str:
    """Return what only the file or the model finds and is no close call; "" if nothing."""
    alone_found = np.setdiff1d(np.arange(len(found.scores)), pairs[:, 0])
    alone_expected = np.setdiff1d(np.arange(len(expected.scores)), pairs[:, 1])
    for place in alone_found.tolist():
        if not candidates.hold(found, place, tolerance):
            return f"the file finds {_in_words(found, place)}, which the model does not predict"
    for name, own, alone, others, others_alone in (
        ("the model", expected, alone_expected, found, alone_found),
        ("the file", found, alone_found, expected, alone_expected),
    ):
        is_alone = np.isin(np.arange(len(others.scores)), others_alone)
        for place in alone.tolist():
            if is_close_call(own, place, others, is_alone, limits, tolerance):
                continue
            # Of another class, whatever they have there explains that this thing is not among them.
            if not any(
                is_close_call(tied, place, others, np.ones_like(is_alone), limits, tolerance)
                for tied in candidates.ties(own, place, tolerance)
            ):
                return f"only {name} finds {_in_words(own, place)}"
    return ""


def _in_words(one: Detections, place: int) -> str:
    box = ", ".join(f"{side:.1f}" for side in one.boxes_xyxy[place])
    return f"class {one.class_index[place]}, score {one.scores[place]:.4f}, at {box}"


def is_close_call(
    one: Detections,
    place: int,
    others: Detections,
    is_alone: np.ndarray,
    limits: Limits,
    tolerance: Tolerance,
) -> bool:
    """Return whether differences within the tolerance explain that others have no such thing.

    Its score is at the threshold; or they are as many as may be, of no lower score (what they have
    in its place is explained by itself); or what they have removes it: something without a partner,
    or with an overlap at the threshold.

    Args:
        is_alone: (K,) bool, which of the others have no partner, or may remove it anyhow.
    """
    settings, near = limits.settings, tolerance.scores
    score, same = one.scores[place], others.class_index == one.class_index[place]
    if abs(score - settings.confidence_threshold) <= near:
        return True
    of_class = one.class_index == one.class_index[place]
    for limit, own, full in (
        (settings.max_detections, one.scores, others.scores),
        (limits.top_per_class, one.scores[of_class], others.scores[same]),
    ):
        if len(own) <= limit == len(full) and score <= full.min() + near:
            return True
    rivals = (others.scores >= score - near) & (same | settings.class_agnostic)
    least, most, close = *overlap_range(one, place, others), 1 - tolerance.iou
    may_remove = rivals & (most >= settings.iou_threshold - close)
    may_leave = is_alone | (least <= settings.iou_threshold + close)
    return bool((may_remove & may_leave).any())


def overlap_range(one: Detections, place: int, others: Detections) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest IoU of one thing with each of the others.

    They differ where either box is thinner than `THIN`: it may lie that much aside.
    """
    exact = overlap(one, place, others)
    grown = overlap(_grown(one), place, _grown(others))
    thin = (_thinnest(one)[place] < THIN) | (_thinnest(others) < THIN)
    return np.where(thin, 0, exact), np.where(thin, np.maximum(exact, grown), exact)


def _grown(one: Detections) -> Detections:
    edges = np.array([-THIN, -THIN, THIN, THIN])
    return one._replace(boxes_xyxy=one.boxes_xyxy.astype(np.float64) + edges)


def _thinnest(one: Detections) -> np.ndarray:
    """Return the shorter side of each box."""
    sides: np.ndarray = (one.boxes_xyxy[:, 2:] - one.boxes_xyxy[:, :2]).min(axis=1)
    return sides
