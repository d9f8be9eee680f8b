"""Non-maximum suppression (NMS): of predictions that overlap, the best stay.

Before: the head's decoded boxes. After: `coco/metric.py`.
Exact, and without a time limit: the result depends on the predictions alone.
"""

from __future__ import annotations

import numpy as np

from utils.boxes import cxcywh_to_xyxy
from utils.detections import Detections
from utils.detections import SuppressionSettings as SuppressionSettings
from utils.evaluation.greedy_nms import suppress_greedily

MAX_CANDIDATES = 30000


def non_max_suppression(
    decoded: np.ndarray, settings: SuppressionSettings, max_candidates: int = MAX_CANDIDATES
) -> Detections:
    """Return the best predictions of one image; none overlaps a better one of its class.

    Predictions of equal score keep the order of their rows, then of their classes.

    Args:
        decoded: (N, 5 + C) float32: cx, cy, w, h in pixels, objectness and class scores in [0, 1].
        max_candidates: only this many candidates, the best, take part.

    Returns:
        Detections in the frame of decoded, K <= settings.max_detections; K = 0 when nothing is
        found.
    """
    return best_rows(decoded, settings, max_candidates)[0]


def best_rows(
    decoded: np.ndarray, settings: SuppressionSettings, max_candidates: int = MAX_CANDIDATES
) -> tuple[Detections, np.ndarray]:
    """Return what `non_max_suppression` does, and the row of decoded of each, (K,) int64."""
    # Half precision would place boxes on a grid of half pixels and tie their scores.
    assert decoded.dtype == np.float32, f"decoded is {decoded.dtype}: cast the raw maps to float32"
    assert settings.confidence_threshold >= 0
    found, row = _candidates(decoded, settings.confidence_threshold, settings.multi_label)
    if settings.classes is not None:
        wanted = np.flatnonzero(np.isin(found.class_index, settings.classes))
        found, row = found.take(wanted), row[wanted]
    kept = _survivors(found, settings, max_candidates)
    return found.take(kept), row[kept]


def suppress_overlapping(
    found: Detections, settings: SuppressionSettings, max_candidates: int = MAX_CANDIDATES
) -> Detections:
    """Return the best of what is found in an image, as `non_max_suppression` chooses.

    Equal scores keep their order.
    """
    return found.take(_survivors(found, settings, max_candidates))


def _survivors(found: Detections, settings: SuppressionSettings, max_candidates: int) -> np.ndarray:
    """Return which of them `suppress_overlapping` keeps, (K,) int64, best first."""
    order = _descending_order(found.scores)[:max_candidates]
    found = found.take(order)
    group = np.zeros_like(found.class_index) if settings.class_agnostic else found.class_index
    threshold = float(np.float32(settings.iou_threshold))
    return order[suppress_greedily(found.boxes_xyxy, group, threshold, settings.max_detections)]


def _candidates(
    decoded: np.ndarray, confidence_threshold: float, multi_label: bool
) -> tuple[Detections, np.ndarray]:
    """Return every prediction above the threshold, by row and then by class, and its row."""
    # No class score exceeds 1, so an objectness below the threshold already decides.
    above = np.flatnonzero(decoded[:, 4] > confidence_threshold)
    decoded = decoded[above]
    boxes_xyxy = cxcywh_to_xyxy(decoded[:, :4])
    scores = decoded[:, 5:] * decoded[:, 4:5]
    num_classes = scores.shape[1]
    if multi_label:
        position = np.flatnonzero(scores > confidence_threshold)
    else:
        best = np.arange(len(scores)) * num_classes + scores.argmax(axis=1)
        position = best[scores.ravel()[best] > confidence_threshold]
    row, class_index = np.divmod(position, num_classes)
    found = Detections(boxes_xyxy.take(row, axis=0), scores.ravel()[position], class_index)
    return found, above[row]


def _descending_order(scores: np.ndarray) -> np.ndarray:
    """Return (N,) int64 indices that sort positive float32 scores: highest first, ties by index."""
    # The bits of a positive float rise with its value. Packed with the index they are unique, so
    # a plain sort is stable: 0.3 ms for 60,000 scores where a stable argsort takes 4 ms.
    descending_bits = (~scores.view(np.uint32)).astype(np.uint64) << np.uint64(32)
    packed = np.sort(descending_bits | np.arange(len(scores), dtype=np.uint64))
    return (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
