"""Masks of pixels, and objects of several parts, as one outline each.

Before: the reader of a format. After: `annotations.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

MAX_CROSSINGS = 200_000  # of the edge of a mask with its rows; one with more is noise


def mask_outline(mask: np.ndarray) -> np.ndarray:
    """Return the outline of a mask (H, W) bool along the edges of its pixels, (K, 2) float64.

    It holds the pixels of the mask and no others; (0, 0) is the left and top edge of the mask.
    Parts and holes are joined as `join_outlines` does. K is 0 without a pixel, and for noise.
    """
    padded = np.pad(mask, 1).astype(np.uint8)
    if not mask.any() or np.count_nonzero(np.diff(padded, axis=1)) > MAX_CROSSINGS:
        return np.zeros((0, 2))
    # cv2 goes through the middles of pixels. In a mask of twice the size those are the left or the
    # right halves of pixels, and each of the two halves leads to the edge beside it.
    doubled = mask.astype(np.uint8).repeat(2, axis=0).repeat(2, axis=1)
    contours, _ = cv2.findContours(doubled, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    return join_outlines([(contour[:, 0] + 1) // 2 for contour in contours])


def join_outlines(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return one outline (K, 2) float64 for parts (K_i, 2), which do not overlap.

    Bridges that are walked twice, and so have no area, lead from part to part and back.
    """
    if len(parts) == 1:
        return np.asarray(parts[0], np.float64)
    closed = [np.concatenate([part, part[:1]]) for part in parts]
    back = [part[:1] for part in parts[-2:0:-1]]
    return np.concatenate([*closed, *back]).astype(np.float64)
