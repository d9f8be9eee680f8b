"""Detections and labelled objects of an image, shared by evaluation and data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from duet.utils.geometry.boxes import rows_of, starts_of


class Ragged(NamedTuple):
    """K rows of any length, concatenated."""

    values: np.ndarray  # (P,)
    lengths: np.ndarray  # (K,) int64, sum P

    @staticmethod
    def of(rows: Sequence[np.ndarray], dtype: type) -> Ragged:
        """Build from rows (N,), cast to this dtype."""
        lengths = np.array([len(row) for row in rows], np.int64)
        return Ragged(np.concatenate([np.zeros(0, dtype), *rows]).astype(dtype), lengths)

    @property
    def num_rows(self) -> int:
        """The number of rows, K; `len` counts the tuple's fields."""
        return len(self.lengths)

    def rows(self) -> list[np.ndarray]:
        return np.split(self.values, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []

    def split(self, counts: Sequence[int]) -> list[Ragged]:
        """Split into consecutive groups of these numbers of rows; views."""
        ends = np.cumsum(counts, dtype=np.int64)[:-1]
        values = np.split(self.values, starts_of(self.lengths)[ends])
        groups = zip(values, np.split(self.lengths, ends), strict=True)
        return [Ragged(*group) for group in groups][: len(counts)]

    def take(self, rows: np.ndarray) -> Ragged:
        """Return the selected rows, by indices in any order or a (K,) bool mask."""
        chosen = np.arange(len(self.lengths))[rows]
        places = rows_of(starts_of(self.lengths), chosen)
        return Ragged(self.values[places], self.lengths[chosen])


class Detections(NamedTuple):
    """The detections of one image, highest score first."""

    boxes_xyxy: np.ndarray  # (K, 4) float32, pixels
    scores: np.ndarray  # (K,) float32, objectness * class score
    class_index: np.ndarray  # (K,) int64

    def take(self, rows: np.ndarray) -> Detections:
        """Return the detections at these rows, in this order."""
        return Detections(*(field[rows] for field in self))


class Segmentations(NamedTuple):
    """The detections of one image with masks, highest score first."""

    boxes_xyxy: np.ndarray  # (K, 4) float32, pixels
    scores: np.ndarray  # (K,) float32, objectness * class score
    class_index: np.ndarray  # (K,) int64
    masks: Ragged  # K rows of uint32: COCO run lengths over the image, column by column

    def take(self, rows: np.ndarray) -> Segmentations:
        return Segmentations(
            self.boxes_xyxy[rows], self.scores[rows], self.class_index[rows], self.masks.take(rows)
        )


FoundObjects = Detections | Segmentations
AnyDetections = TypeVar("AnyDetections", Detections, Segmentations)


class Classification(NamedTuple):
    scores: np.ndarray  # (1, C) float32, sum 1


Found = Detections | Segmentations | Classification  # by a task, in one image


class GroundTruth(NamedTuple):
    """The objects labelled in one image."""

    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float, pixels, in the same frame as the detections
    is_crowd: np.ndarray | None = None  # (M,) bool, boxes around many objects; None: no crowds
    area: np.ndarray | None = None  # (M,) float64, square pixels; None: the areas of the boxes
    masks: Ragged | None = None  # M rows of run lengths, as in `Segmentations`

    def take(self, rows: np.ndarray) -> GroundTruth:
        """Return the selected objects, by indices in any order or an (M,) bool mask."""
        masks = None if self.masks is None else self.masks.take(rows)
        crowd, area = (None if field is None else field[rows] for field in self[2:4])
        return GroundTruth(self.class_index[rows], self.boxes_xyxy[rows], crowd, area, masks)


@dataclass(frozen=True)
class SuppressionSettings:
    """Settings of NMS (`utils/evaluation/nms.py`).

    Attributes:
        confidence_threshold: at least 0; only scores above it become candidates.
        iou_threshold: a candidate is removed if its IoU with a kept one of its class is above this,
            rounded to float32.
        class_agnostic: a kept box also removes boxes of other classes.
        classes: only these classes become candidates; None: all.
        max_detections: maximum number to keep.
        multi_label: every class above the threshold is a candidate, not only the best one.
    """

    confidence_threshold: float = 0.001
    iou_threshold: float = 0.6
    class_agnostic: bool = False
    classes: tuple[int, ...] | None = None
    max_detections: int = 300
    multi_label: bool = True
