"""What was found in an image, in words.

Before: `result.py`. After: a line on screen.
"""

from __future__ import annotations

import numpy as np

from utils.results.result import Result


def summary(result: Result, input_size: tuple[int, int] | None = None) -> str:
    """Return "224x320 1 person, 3 chairs": a size, and how many of each class were found.

    Args:
        input_size: (height, width) of what the network took; None for the image's own.
    """
    height, width = input_size or result.image.shape[:2]
    indices, counts = np.unique(result.class_index, return_counts=True)
    found = [
        f"{count} {result.class_names[index]}{'s' * (count > 1)}"
        for index, count in zip(indices.tolist(), counts.tolist(), strict=True)
    ]
    return f"{height}x{width} {', '.join(found) or '(no detections)'}"
