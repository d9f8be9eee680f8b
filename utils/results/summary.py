"""What was found in an image, in words.

Before: `image_result.py`. After: a line on screen.
"""

from __future__ import annotations

from utils.results.image_result import ImageResult


def summary(result: ImageResult, input_size: tuple[int, int] | None = None) -> str:
    """Return "224x320 1 person, 3 chairs": a size, and what was found.

    Args:
        input_size: (height, width) of what the network took; None for the image's own.
    """
    height, width = input_size or result.size
    return f"{height}x{width} {result.words()}"
