"""Run lengths -> the part of a mask in which the object lies: a small object costs little.

Before: `runs.py`. After: drawings, outlines.
"""

from __future__ import annotations

import numpy as np

from utils.masks import outline
from utils.masks.runs import Window, bounds


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
    """Return `outline.largest` of a mask of this size, (N, 2) float32 x and y in its pixels."""
    top, left, pixels = window_of_runs(runs, size)
    return outline.largest(pixels) + np.array((left, top), np.float32)
