"""What was found in an image, in words.

Before: `result.py`. After: a line on screen.
"""

from __future__ import annotations

from utils.results.result import Result
from utils.results.words import count_by_class


def summary(result: Result, input_size: tuple[int, int] | None = None) -> str:
    """Return "224x320 1 person, 3 chairs": a size, and how many of each class were found.

    Args:
        input_size: (height, width) of what the network took; None for the image's own.
    """
    height, width = input_size or result.image.shape[:2]
    return f"{height}x{width} {count_by_class(result.class_index, result.class_names)}"
