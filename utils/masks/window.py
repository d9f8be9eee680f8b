"""Run lengths -> the part of a mask in which the object lies: a small object costs little."""

from __future__ import annotations

import cv2
import numpy as np

from utils.masks.runs import Window, bounds


def largest_outline(mask: np.ndarray) -> np.ndarray:
    """Return the outer border of the piece with the most points, (N, 2) float32 x and y.

    Corners are pixels of the piece; straight parts between them are left out, and holes are not
    seen. N is 0 of an empty mask.

    mask: (H, W) bool.
    """
    pixels = np.ascontiguousarray(mask, np.uint8)
    borders, _ = cv2.findContours(pixels, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    pieces = [border.reshape(-1, 2).astype(np.float32) for border in borders]
    return max(pieces, key=len, default=np.zeros((0, 2), np.float32))


def window_of_runs(runs: np.ndarray, size: tuple[int, int]) -> Window:
    """Return the smallest window around an object; one without pixels of an empty mask.

    Args:
        runs: (N,) of a mask of this size.
        size: (height, width).
    """
    height, _ = size
    left, top, right, bottom = bounds(runs, height)
    ends = (np.cumsum(runs, dtype=np.int64) - left * height).clip(0, (right - left) * height)
    is_object = np.arange(len(runs)) % 2 == 1
    columns = np.repeat(is_object, np.diff(ends, prepend=0)).reshape(right - left, height)
    return Window(top, left, columns.T[top:bottom])


def outline_of_runs(runs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return `largest_outline` of a mask of this size, (N, 2) float32 x and y in its pixels."""
    top, left, pixels = window_of_runs(runs, size)
    return largest_outline(pixels) + np.array((left, top), np.float32)
