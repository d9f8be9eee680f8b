"""Objects' pixels on an image: a tint of the class's colour, and a line around it."""

from __future__ import annotations

import cv2
import numpy as np

from utils.drawing.annotate import default_line_width
from utils.drawing.colours import class_colour
from utils.masks.window import window_of_runs
from utils.ragged import Ragged


def draw_masks(image: np.ndarray, masks: Ragged, class_index: np.ndarray) -> None:
    """Draw objects on an image (H, W, 3) uint8 RGB, in place.

    If several cover a pixel, the first is drawn, half transparent. Each mask is unpacked by itself,
    as far as its object goes.

    Args:
        masks: K rows of run lengths over the image, the most important first.
        class_index: (K,), which decides the colour.
    """
    plain = image.copy()
    size = image.shape[0], image.shape[1]
    width = 2 * max(default_line_width(size) // 2, 1) + 1
    for runs, index in zip(reversed(masks.rows()), class_index[::-1].tolist(), strict=True):
        top, left, pixels = window_of_runs(runs, size)
        if not pixels.size:
            continue
        part = np.s_[top : top + pixels.shape[0], left : left + pixels.shape[1]]
        colour = np.array(class_colour(index), np.uint8)
        brush = np.ones((width, width), np.uint8)
        filled = np.ascontiguousarray(pixels, np.uint8)
        inside = cv2.erode(filled, brush, borderType=cv2.BORDER_CONSTANT, borderValue=(0,))
        tinted = cv2.addWeighted(plain[part], 0.5, np.full_like(plain[part], colour), 0.5, 0)
        image[part][pixels] = colour
        cv2.copyTo(tinted, np.asarray(inside, np.uint8), image[part])
