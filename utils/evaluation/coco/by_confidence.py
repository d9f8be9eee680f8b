"""Precision, recall and F1 of each class at every confidence.

Before: `matching.py`. After: `metric.py` beside this, and `utils/report/plots/curves.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CONFIDENCE_GRID = np.linspace(0.0, 1.0, 501)


@dataclass(frozen=True, eq=False)
class ByConfidence:
    """The figures of each class if only detections of at least a confidence count.

    Each array of figures is (C, 501) float64, column per CONFIDENCE_GRID. Classes without ground
    truth are NaN in it.
    """

    num_found: np.ndarray  # (C, 501) int32 detections of at least this confidence
    num_correct: np.ndarray  # (C, 501) int32 of these, with an object at IoU 0.50
    num_ground_truth: np.ndarray  # (C,) int64

    @property
    def precision(self) -> np.ndarray:
        """NaN too where nothing is left."""
        return self.num_correct / self._known(self.num_found)

    @property
    def recall(self) -> np.ndarray:
        """The fraction of the objects that is found."""
        return self.num_correct / self._known(self.num_ground_truth[:, None])

    @property
    def f1(self) -> np.ndarray:
        """The harmonic mean of both; 0 if nothing is left."""
        total = self.num_found + self.num_ground_truth[:, None]
        return 2 * self.num_correct / self._known(total)

    def _known(self, denominator: np.ndarray) -> np.ndarray:
        is_known = (self.num_ground_truth[:, None] > 0) & (denominator > 0)
        return np.where(is_known, denominator, np.nan)


def count_by_confidence(
    scores: np.ndarray, class_index: np.ndarray, correct: np.ndarray, num_ground_truth: np.ndarray
) -> ByConfidence:
    """Count the detections (D,) that are left at each confidence, and the correct ones of them."""
    step = np.searchsorted(CONFIDENCE_GRID, scores, side="right") - 1
    shape = len(num_ground_truth), len(CONFIDENCE_GRID)
    place = class_index * shape[1] + step
    counts = [
        np.bincount(places, minlength=shape[0] * shape[1]).reshape(shape)
        for places in (place, place[correct])
    ]
    found, right = (np.cumsum(count[:, ::-1], axis=1, dtype=np.int32)[:, ::-1] for count in counts)
    return ByConfidence(found, right, num_ground_truth)
