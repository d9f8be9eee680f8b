"""A batch's images travel to the device as bytes and become floats there.

Before: `data/loader.py`. After: `models/detector.py`.
"""

from __future__ import annotations

import numpy as np

from backend import ops
from backend.contract import Tensor


def images_to_tensor(images: np.ndarray, device: str, dtype: str = "float32") -> Tensor:
    """(B, 3, H, W) uint8 -> float tensor of the same shape in [0, 1]."""
    return ops.cast(ops.tensor(images, device), dtype) / 255.0
