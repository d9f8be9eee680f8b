"""Objects' pixels on an image: a tint of the class's colour, and a line around it.

Before: `utils/results/mask_result.py`. After: `annotate.py` draws boxes and labels over them.
"""

from __future__ import annotations

import cv2
import numpy as np

from utils.drawing.annotate import default_line_width
from utils.drawing.colours import NUM_COLOURS, class_colour
from utils.masks.window import window_of_runs
from utils.ragged import Ragged

OPACITY = 0.5  # of the colour in an object
_EDGE, _INSIDE = 1, 2  # of a colour's numbers in the map of paints, where 0 is none
_ROWS = 128  # that are tinted at a time: the memory beside the image stays small


def draw_masks(image: np.ndarray, masks: Ragged, class_index: np.ndarray) -> None:
    """Draw objects on an image (H, W, 3) uint8 RGB, in place.

    If several cover a pixel, the first is drawn, half transparent. Each mask is
    unpacked by itself, as far as its object goes.

    Args:
        masks: K rows of run lengths over the image, the most important first.
        class_index: (K,), which decides the colour.
    """
    size = image.shape[0], image.shape[1]
    line_width = max(default_line_width(size) // 2, 1)
    paints = np.zeros(size, np.uint8)
    for runs, index in zip(reversed(masks.rows()), class_index[::-1].tolist(), strict=True):
        _add(paints, runs, index % NUM_COLOURS, line_width)
    for first in range(0, size[0], _ROWS):
        _tint(image[first : first + _ROWS], paints[first : first + _ROWS])


def _add(paints: np.ndarray, runs: np.ndarray, colour: int, line_width: int) -> None:
    """Note an object in the map of paints (H, W) uint8."""
    top, left, pixels = window_of_runs(runs, (paints.shape[0], paints.shape[1]))
    if not pixels.size:
        return
    part = paints[top : top + pixels.shape[0], left : left + pixels.shape[1]]
    brush = np.ones((2 * line_width + 1,) * 2, np.uint8)
    object_pixels = np.ascontiguousarray(pixels, np.uint8)
    inside = cv2.erode(object_pixels, brush, borderType=cv2.BORDER_CONSTANT, borderValue=(0,))
    np.copyto(part, np.asarray(inside, np.uint8) + np.uint8(_EDGE + 2 * colour), where=pixels)


def _tint(image: np.ndarray, paints: np.ndarray) -> None:
    """Colour the rows (h, W, 3) of an image by their paints (h, W)."""
    if not paints.any():
        return
    colours = cv2.LUT(cv2.merge([paints] * 3), _table())
    tinted = cv2.addWeighted(image, 1 - OPACITY, colours, OPACITY, 0)
    cv2.copyTo(tinted, paints, image)
    cv2.copyTo(colours, paints & np.uint8(_EDGE), image)


def _table() -> np.ndarray:
    """Return the colour of each paint, (1, 256, 3) uint8 RGB."""
    table = np.zeros((1, 256, 3), np.uint8)
    for index in range(NUM_COLOURS):
        first = _EDGE + 2 * index
        table[0, first : first + _INSIDE] = class_colour(index)
    return table
