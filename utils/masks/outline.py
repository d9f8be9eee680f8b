"""Masks -> outlines, as label files, drawings and other programs take them.

Before: `runs.py::mask_of_runs`. Source: Suzuki and Abe 1985, "Topological structural analysis of
digitized binary images by border following", which is OpenCV's.
"""

from __future__ import annotations

import cv2
import numpy as np


def largest(mask: np.ndarray) -> np.ndarray:
    """Return the outer border of the piece with the most points, (N, 2) float32 x and y.

    Corners are pixels of the piece; straight parts between them are left out, and holes are not
    seen. N is 0 of an empty mask.

    mask: (H, W) bool.
    """
    pixels = np.ascontiguousarray(mask, np.uint8)
    borders, _ = cv2.findContours(pixels, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    pieces = [border.reshape(-1, 2).astype(np.float32) for border in borders]
    return max(pieces, key=len, default=np.zeros((0, 2), np.float32))
