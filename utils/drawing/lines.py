"""Lines of text in the upper left corner of an image.

Before: `utils/results/class_result.py`. After: files, a window, a caller.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from utils.drawing.annotate import LEAST_LETTERS, default_font_size
from utils.drawing.colours import RGB
from utils.drawing.label_image import label_height, label_image

MAX_LINES_HEIGHT = 1 / 2  # of the image's


def draw_lines(image: np.ndarray, lines: Sequence[str], colours: Sequence[RGB]) -> np.ndarray:
    """Return a copy of an image (H, W, 3) uint8 RGB with lines, each on its colour.

    They hide at most the upper half: letters are made smaller, and the last lines left out, where
    there is no more room. A very small image has none.
    """
    drawn = image.copy()
    height, width = image.shape[:2]
    letters = _font_size((height, width), len(lines))
    step = label_height(letters)
    room = int(MAX_LINES_HEIGHT * height) // step
    for number, (line, colour) in enumerate(zip(lines[:room], colours, strict=False)):
        label = label_image(line, letters, colour, width)
        drawn[number * step : (number + 1) * step, : label.shape[1]] = label
    return drawn


def _font_size(image_size: tuple[int, int], num_lines: int) -> int:
    """Return the size at which all lines fit, or the smallest that can be read."""
    size = default_font_size(image_size)
    room = MAX_LINES_HEIGHT * image_size[0] / max(num_lines, 1)
    while size > LEAST_LETTERS and label_height(size) > room:
        size -= 1
    return size
