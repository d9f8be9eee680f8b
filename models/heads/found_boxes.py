"""Base of heads that predict boxes: converts rows to detections.

A row has cxcywh in pixels, objectness and C class scores; heads without objectness use 1, so that
rows from different heads can be combined.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.models.heads.base import Candidates, Head, Pass
from duet.utils.data.image.letterbox import Letterbox
from duet.utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from duet.utils.evaluation.nms import best_rows_of_images, descending
from duet.utils.geometry.detections import Detections, SuppressionSettings

SCORE_ROUNDING = 1e-6  # upper bound for the error of a float32 sigmoid
# Only an image whose best rows leave fewer than `max_detections` could gain from more: none of 128
# of COCO with 3,000. One object may have dozens, so that few detections need no fewer rows. An
# untrained model of one class has a row above the threshold in every cell.
ROWS_PER_DETECTION, FEWEST_ROWS = 10, 3000


class BoxHead(Head):
    """Head whose maps yield separate rows, so that views and models can be combined."""

    metric_names = {
        "precision": "P", "recall": "R", "mAP_0.5": "mAP50", "mAP_0.5:0.95": "mAP50-95",
    }  # fmt: skip
    nothing_found = Detections(
        np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64)
    )
    joins_models = True
    # Scales, mirroring and unused maps as in the public YOLOv5.
    passes = (Pass(1.0, False, max), Pass(0.83, True), Pass(0.67, False, min))

    @abstractmethod
    def decode_above(
        self,
        raw: Sequence[Tensor],
        settings: SuppressionSettings,
        levels: Sequence[int] | None = None,
    ) -> list[Candidates]:
        """Return each image's candidates from some levels, or all."""

    def join_passes(
        self, raw: Sequence[Sequence[Tensor]], width: int, settings: SuppressionSettings
    ) -> list[np.ndarray]:
        """Return each image's rows from all passes in order, in image pixels."""
        passes = []
        for one, maps in zip(self.passes, raw, strict=True):
            levels = used_levels(one, self.strides)
            found = self.decode_above(maps, settings, levels)
            passes.append([brought_back(rows, one, width) for rows in found])
        return [np.concatenate(image) for image in zip(*passes, strict=True)]

    def finish_images(
        self,
        decoded: Sequence[np.ndarray],
        places: Sequence[Letterbox],
        settings: SuppressionSettings,
    ) -> list[Detections]:
        return [
            found._replace(boxes_xyxy=letterbox.to_original(found.boxes_xyxy))
            for (found, _), letterbox in zip(
                best_rows_of_images(decoded, settings), places, strict=True
            )
        ]

    def make_evaluator(self, class_names: Sequence[str]) -> DetectionEvaluator:
        return DetectionEvaluator(class_names)

    @staticmethod
    def class_scores(result: EvaluationResult) -> tuple[float, ...]:
        """Return mAP50-95 per class; for classes without objects, the mean of the others."""
        return tuple(np.where(np.isnan(result.ap), result.map, result.ap).tolist())


def rows_of_images(
    above: Sequence[Tensor],
    scores_of: Callable[[int], Tensor],
    decode_at: Callable[[int, Sequence[np.ndarray]], Tensor],
    settings: SuppressionSettings,
) -> list[np.ndarray]:
    """Return the decoded rows of selected cells, one array (K, ...) per image.

    With trained weights and a threshold of 0.001 this is one row in ten; decoding and fetching all
    rows took ten times as long. Of an image with more than `ROWS_PER_DETECTION` per detection, the
    best are decoded, unless only some classes are wanted, of which these may show none. The host
    waits for the device for the selection, for the rows, and for the scores of such images. All
    copies use page-locked memory if available.

    Args:
        above: per level (B, ...) bool: selected cells, or anchors of cells.
        scores_of: returns the best score, from 0 to 1, of each row (N,) of an image, of all levels.
        decode_at: returns a level's rows (K, ...), given its number and positions in `above`.
    """
    flat = ops.to_numpy_later(ops.cat([x.reshape(x.shape[0], -1) for x in above], dim=1))()
    if settings.classes is None:
        most = max(ROWS_PER_DETECTION * settings.max_detections, FEWEST_ROWS)
        _keep_best(flat, scores_of, most)
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


def _keep_best(flat: np.ndarray, scores_of: Callable[[int], Tensor], most: int) -> None:
    """Leave at most this many rows of each image selected in (B, N) bool."""
    crowded = np.flatnonzero(flat.sum(axis=1) > most).tolist()
    if not crowded:
        return
    scores = ops.to_numpy_later(ops.stack([scores_of(image) for image in crowded]))()
    for image, own in zip(crowded, scores.astype(np.float32, copy=False), strict=True):
        rows = np.flatnonzero(flat[image])
        flat[image, rows[descending(own[rows])[most:]]] = False


def logit(score: float) -> float:
    """Return the inverse of the sigmoid; minus infinity for scores of 0 or less."""
    return math.log(score / (1 - score)) if score > 0 else -math.inf


def used_levels(one: Pass, strides: Sequence[int]) -> list[int]:
    """Return the maps used by a pass; all for a model with a single stride."""
    unused = one.unused(strides) if one.unused else None
    used = [level for level, stride in enumerate(strides) if stride != unused]
    return used or list(range(len(strides)))


def brought_back(rows: np.ndarray, one: Pass, width: int) -> np.ndarray:
    """Map a pass's rows (K, 4 + ...) back to images of this width."""
    boxes_cxcywh = rows[:, :4] / np.float32(one.scale)
    if one.mirrored:
        boxes_cxcywh[:, 0] = width - boxes_cxcywh[:, 0]
    return np.concatenate([boxes_cxcywh, rows[:, 4:]], axis=1)
