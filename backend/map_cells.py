"""The cells of a feature map, in NumPy: the same for every backend."""

from __future__ import annotations

import numpy as np


def cells_of_map(height: int, width: int, dtype: str) -> np.ndarray:
    """Return column and row of each cell, (1, 1, H, W, 2)."""
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    return np.stack([columns, rows], axis=-1)[None, None].astype(dtype)
