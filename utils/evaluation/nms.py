"""Non-maximum suppression (NMS): of predictions that overlap, the best stay.

Exact, and without a time limit: the result depends only on the predictions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from utils.boxes import cxcywh_to_xyxy
from utils.detections import Detections
from utils.detections import SuppressionSettings as SuppressionSettings
from utils.evaluation.greedy_nms import suppress_greedily
from utils.evaluation.ordering import descending_order

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
    (best,) = best_rows_of_images([decoded], settings, max_candidates)
    return best


def best_rows_of_images(
    images: Sequence[np.ndarray],
    settings: SuppressionSettings,
    max_candidates: int = MAX_CANDIDATES,
) -> list[tuple[Detections, np.ndarray]]:
    """Return what `best_rows` does of each image, in less time than one after the other."""
    assert settings.confidence_threshold >= 0
    candidates = [_candidates(decoded, settings) for decoded in images]
    kept = _survivors([found for found, _ in candidates], settings, max_candidates)
    return [
        (found.take(index), row[index])
        for (found, row), index in zip(candidates, kept, strict=True)
    ]


def suppress_overlapping(
    found: Detections, settings: SuppressionSettings, max_candidates: int = MAX_CANDIDATES
) -> Detections:
    """Return the best of what is found in an image, as `non_max_suppression` chooses.

    Equal scores keep their order.
    """
    (kept,) = _survivors([found], settings, max_candidates)
    return found.take(kept)


def _survivors(
    images: Sequence[Detections], settings: SuppressionSettings, max_candidates: int
) -> list[np.ndarray]:
    """Return which of each image `suppress_overlapping` keeps, (K,) int64, best first."""
    orders = [descending_order(found.scores)[:max_candidates] for found in images]
    lengths = [len(order) for order in orders]
    boxes: list[np.ndarray] = [np.zeros((0, 4), np.float32)]
    groups: list[np.ndarray] = [np.zeros(0, np.int64)]
    for found, order in zip(images, orders, strict=True):
        boxes.append(found.boxes_xyxy.take(order, axis=0))
        groups.append(found.class_index.take(order))
    group = np.concatenate(groups)
    if settings.class_agnostic:
        group = np.zeros_like(group)
    threshold, most = float(np.float32(settings.iou_threshold)), settings.max_detections
    kept = suppress_greedily(np.concatenate(boxes), group, threshold, most, lengths)
    ends = np.cumsum(lengths, dtype=np.int64)
    of_images = np.split(kept, np.searchsorted(kept, ends))
    firsts = ends - lengths
    return [
        order[index - first] for order, index, first in zip(orders, of_images, firsts, strict=False)
    ]


def _candidates(
    decoded: np.ndarray, settings: SuppressionSettings
) -> tuple[Detections, np.ndarray]:
    """Return every prediction above the threshold, by row and then by class, and its row."""
    # Half precision would place boxes on a grid of half pixels and tie their scores.
    assert decoded.dtype == np.float32, f"decoded is {decoded.dtype}: cast the raw maps to float32"
    # No class score exceeds 1, so an objectness below the threshold already decides.
    above = np.flatnonzero(decoded[:, 4] > settings.confidence_threshold)
    if len(above) < len(decoded):  # else a copy of many columns is saved
        decoded = decoded[above]
    boxes_xyxy = cxcywh_to_xyxy(decoded[:, :4])
    scores = decoded[:, 5:] * decoded[:, 4:5]
    num_classes = scores.shape[1]
    if settings.multi_label:
        position = np.flatnonzero(scores > settings.confidence_threshold)
    else:
        best = np.arange(len(scores)) * num_classes + scores.argmax(axis=1)
        position = best[scores.ravel()[best] > settings.confidence_threshold]
    row, class_index = np.divmod(position, num_classes)
    if settings.classes is not None:
        wanted = np.flatnonzero(np.isin(class_index, settings.classes))
        position, row, class_index = position[wanted], row[wanted], class_index[wanted]
    found = Detections(boxes_xyxy.take(row, axis=0), scores.ravel()[position], class_index)
    return found, above[row]
