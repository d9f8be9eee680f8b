"""The shape of a batch of images of like aspect ratio.

Before: `order.py::aspect_order` puts such images together. After: `batches.py`, `val_batches.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from utils.data.image.letterbox import fit_long_side


def rectangle(
    sizes: Iterable[tuple[int, int]], long_side: int, stride: int, margin: float = 0.0
) -> tuple[int, int]:
    """Return the smallest (height, width) in multiples of `stride` that holds these images.

    Args:
        sizes: (height, width) of the images, each of which is resized to `long_side`.
        margin: room around them, in strides.
    """
    inside = long_side, long_side
    resized = [fit_long_side(size, long_side, inside).resized_size for size in sizes]
    height, width = np.max(resized, axis=0) / stride + margin
    return math.ceil(height) * stride, math.ceil(width) * stride
