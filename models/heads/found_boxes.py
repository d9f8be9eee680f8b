"""What heads that find boxes have in common: rows of cells become detections.

A row is cx, cy, w, h in pixels, objectness and C class scores; a head without objectness has 1 in
its place. So rows of any such heads can be joined.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.models.heads.base import Head, Pass
from duet.utils.data.image.letterbox import Letterbox, letterbox_to_image
from duet.utils.detections import Detections, SuppressionSettings
from duet.utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from duet.utils.evaluation.nms import best_rows_of_images

SCORE_ROUNDING = 1e-6  # more than a float32 sigmoid can be wrong by


class BoxHead(Head):
    """A head whose maps each give their own rows, so that views and models can be joined."""

    figure_names = {
        "precision": "P", "recall": "R", "mAP_0.5": "mAP50", "mAP_0.5:0.95": "mAP50-95",
    }  # fmt: skip
    target_fields = ("image_index", "class_index", "boxes_cxcywh_norm")
    nothing_found = Detections(
        np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64)
    )
    joins_models = True
    # Scales, mirroring and unused maps are those of the public YOLOv5.
    passes = (Pass(1.0, False, max), Pass(0.83, True), Pass(0.67, False, min))

    @abstractmethod
    def decode_above(
        self,
        raw: Sequence[Tensor],
        confidence_threshold: float,
        levels: Sequence[int] | None = None,
    ) -> list[Any]:
        """Return the candidates of each image, of some levels or of all."""

    def join_passes(
        self, raw: Sequence[Any], width: int, confidence_threshold: float
    ) -> list[np.ndarray]:
        """Return of each image the rows of all passes, in their order, in pixels of the image."""
        passes = []
        for one, maps in zip(self.passes, raw, strict=True):
            levels = used_levels(one, self.strides)
            found = self.decode_above(maps, confidence_threshold, levels)
            passes.append([brought_back(rows, one, width) for rows in found])
        return [np.concatenate(image) for image in zip(*passes, strict=True)]

    def finish_images(
        self,
        decoded: Sequence[np.ndarray],
        places: Sequence[Letterbox],
        settings: SuppressionSettings,
    ) -> list[Detections]:
        return [
            found._replace(boxes_xyxy=letterbox_to_image(found.boxes_xyxy, letterbox))
            for (found, _), letterbox in zip(
                best_rows_of_images(decoded, settings), places, strict=True
            )
        ]

    def make_evaluator(self, class_names: Sequence[str]) -> DetectionEvaluator:
        return DetectionEvaluator(class_names)

    @staticmethod
    def class_scores(result: EvaluationResult) -> tuple[float, ...]:
        """Return mAP50-95 by class; the mean of the others for one without objects."""
        return tuple(np.where(np.isnan(result.ap), result.map, result.ap).tolist())


def rows_of_images(
    above: Sequence[Tensor], decode_at: Callable[[int, Sequence[np.ndarray]], Tensor]
) -> list[np.ndarray]:
    """Return the decoded rows of chosen cells, one array (K, ...) an image.

    With trained weights and a threshold of 0.001 it is one row of ten: decoding and fetching every
    row took ten times as long. The host waits for the device twice: for which rows, and for them.
    Both copies go into page-locked memory where there is some, and what lies between needs no wait.

    Args:
        above: of each level (B, ...) bool: the cells, or anchors of cells, that are chosen.
        decode_at: returns rows (K, ...) of a level, by its number and places in `above`.
    """
    flat = ops.to_numpy_later(ops.cat([x.reshape(x.shape[0], -1) for x in above], dim=1))()
    ends = np.cumsum([math.prod(x.shape[1:]) for x in above])
    images, decoded = [], []
    for number, part in enumerate(np.split(flat, ends[:-1], axis=1)):
        places = np.unravel_index(np.flatnonzero(part), above[number].shape)
        images.append(places[0])
        decoded.append(decode_at(number, places))
    image = np.concatenate(images)
    rows = ops.to_numpy_later(ops.cat(decoded))()
    rows = rows.take(np.argsort(image, kind="stable"), axis=0)
    return np.split(rows, np.cumsum(np.bincount(image, minlength=len(flat)))[:-1])


def logit(score: float) -> float:
    """Return the inverse of the sigmoid: minus infinity from 0 down."""
    return math.log(score / (1 - score)) if score > 0 else -math.inf


def used_levels(one: Pass, strides: Sequence[int]) -> list[int]:
    """Return the maps whose rows a pass gives: of a model with one stride, all."""
    unused = one.unused(strides) if one.unused else None
    used = [level for level, stride in enumerate(strides) if stride != unused]
    return used or list(range(len(strides)))


def brought_back(rows: np.ndarray, one: Pass, width: int) -> np.ndarray:
    """Return rows (K, 4 + ...) of a pass as if found in images of this width."""
    boxes_cxcywh = rows[:, :4] / np.float32(one.scale)
    if one.mirrored:
        boxes_cxcywh[:, 0] = width - boxes_cxcywh[:, 0]
    return np.concatenate([boxes_cxcywh, rows[:, 4:]], axis=1)
