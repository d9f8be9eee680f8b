"""How well anchors fit the sizes of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from utils.data.sources.samples import Sample, table_of

CHUNK = 2**20  # pairs of a box and an anchor that are compared at a time
TINY = 1e-9  # pixels; anchors that were never fitted are 0 wide


class Fit(NamedTuple):
    """How well anchors fit boxes.

    An anchor can predict a box whose width and height are both within a factor, the threshold, of
    its own.
    """

    best_possible_recall: float  # share of the boxes that some anchor can predict
    anchors_per_target: float  # anchors that can predict a box, on average
    fitness: float  # mean likeness of a box and its best anchor; 0 if that cannot predict it


def label_sizes(samples: Sequence[Sample], image_size: int) -> np.ndarray:
    """Return the (width, height) of all boxes, (N, 2) float64, as training sees them.

    That is in pixels of images whose long side is `image_size`, before any augmentation.
    """
    table = table_of(samples)
    scale = image_size / table.sizes.max(axis=1, keepdims=True)
    pixels_wh = table.sizes[:, ::-1] * scale
    # In float32, as labels are: 64 px, exactly four times an anchor's 16, stay so.
    of_objects = pixels_wh.astype(np.float32)[table.image_of_object]
    return (table.boxes_cxcywh_norm[:, 2:] * of_objects).astype(np.float64)


def measure_fit(sizes_wh: np.ndarray, anchors_wh: np.ndarray, threshold: float) -> Fit:
    """Measure how well anchors fit boxes.

    Args:
        sizes_wh: (N, 2) of boxes, pixels.
        anchors_wh: (A, 2), the same unit.
        threshold: the hyper-parameter anchor_t, above 1.

    Returns:
        All 0 when N is 0.
    """
    lowest = 1 / threshold
    reached = close = fitness = 0.0
    rows = max(CHUNK // len(anchors_wh), 1)
    for start in range(0, len(sizes_wh), rows):
        likeness = likeness_of(sizes_wh[start : start + rows], anchors_wh)
        best = likeness.max(axis=1)
        reached += np.count_nonzero(best > lowest)
        close += np.count_nonzero(likeness > lowest)
        fitness += fitness_of(best, threshold)
    number = max(len(sizes_wh), 1)
    return Fit(reached / number, close / number, fitness / number)


def likeness_of(sizes_wh: np.ndarray, anchors_wh: np.ndarray) -> np.ndarray:
    """Return the likeness of boxes to anchors, (N, A) from 0 to 1.

    It is the smaller of the ratios of widths and of heights, each taken so that it is at most 1.
    """
    ratios = []
    for axis in (0, 1):
        boxes, anchors = sizes_wh[:, axis, None], anchors_wh[:, axis]
        larger = np.maximum(np.maximum(boxes, anchors), TINY)
        ratios.append(np.minimum(boxes, anchors) / larger)
    return np.minimum(*ratios)


def fitness_of(best: np.ndarray, threshold: float) -> float:
    """Return the sum of the fitness of boxes, of the likeness to their best anchors (N,)."""
    return float(best[best > 1 / threshold].sum())
