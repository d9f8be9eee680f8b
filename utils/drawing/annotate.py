"""Boxes with their labels on an image.

Before: `utils/results/result.py`, `utils/report/plots/`. After: files, a window, a caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from utils.boxes import clip_boxes
from utils.drawing.colours import RGB, class_colour, ink_on
from utils.drawing.label_image import label_height, label_image
from utils.drawing.placement import LabelPlacer, Rectangle

# Lines grow with the image, which is shown in a window or on a page. Letters grow slower: in a
# large image there is more to read.
LINE_OF_SIDE = 0.003
LETTERS_OF_SIDE, LETTERS_POWER = 0.12, 0.75
LEAST_LETTERS = 10  # pixels; smaller ones are not read
MAX_LABEL_HEIGHT = 1 / 8  # of the image's
LINES_IN_BOX = 4  # a box is at least so many lines wide, so that one sees what it holds
EDGES_IN_LINE = 3


class Outline(NamedTuple):
    """The line around a box, and a thin edge around the line that sets it off from the image."""

    line: Rectangle  # its outer side
    line_width: int
    edge: Rectangle  # likewise
    edge_width: int


def draw_boxes(
    image: np.ndarray,
    boxes_xyxy: np.ndarray,
    class_index: np.ndarray,
    labels: Sequence[str],
    line_width: int | None = None,
) -> np.ndarray:
    """Return a copy of an image (H, W, 3) uint8 RGB with boxes and their labels.

    Labels do not overlap if there is room. They hide at most a quarter of an image: in a
    crowd the last boxes have none, and a very small image has none at all.

    Args:
        boxes_xyxy: (K, 4), pixels; the most important first. One that is not finite, or has no
            part in the image, is left out.
        class_index: (K,), which decides the colour.
        labels: of each box, one line in any script; "" for none.
        line_width: pixels; None for what suits the image.
    """
    drawn = image.copy()
    size = drawn.shape[0], drawn.shape[1]
    seen = np.flatnonzero(_is_seen(boxes_xyxy, size))
    boxes = np.round(clip_boxes(boxes_xyxy[seen].astype(np.float64), size)).astype(int)
    colours = [class_colour(index) for index in class_index[seen].tolist()]
    width = line_width or default_line_width(size)
    outlines = [_outline(box, width, size) for box in boxes.tolist()]
    for outline, colour in zip(reversed(outlines), reversed(colours), strict=True):
        _draw_outline(drawn, outline, colour)
    texts = [labels[index] for index in seen.tolist()]
    _draw_labels(drawn, [outline.edge for outline in outlines], texts, colours)
    return drawn


def default_line_width(image_size: tuple[int, int]) -> int:
    """Return the width of outlines, pixels, for an image (height, width)."""
    return max(round(LINE_OF_SIDE * _side(image_size)), 1)


def default_font_size(image_size: tuple[int, int]) -> int:
    """Return the size of the letters' em, pixels, for an image (height, width)."""
    return max(round(LETTERS_OF_SIDE * _side(image_size) ** LETTERS_POWER), LEAST_LETTERS)


def _side(image_size: tuple[int, int]) -> float:
    """Return the mean side; less for a long strip, which is never seen as a whole."""
    return min(sum(image_size) / 2, 3 * min(image_size))


def _is_seen(boxes_xyxy: np.ndarray, image_size: tuple[int, int]) -> np.ndarray:
    """Return (K,) bool: which boxes are finite and have a part in the image."""
    height, width = image_size
    left, top, right, bottom = boxes_xyxy.T
    inside = (left < width) & (top < height) & (right > 0) & (bottom > 0)
    return inside & np.isfinite(boxes_xyxy).all(axis=1)


def _outline(box: Sequence[int], line_width: int, image_size: tuple[int, int]) -> Outline:
    """Return the outline of a box within the image; a small box has a thinner line."""
    left, top, right, bottom = box
    line_width = max(min(line_width, min(right - left, bottom - top) // LINES_IN_BOX), 1)
    edge_width = max(line_width // EDGES_IN_LINE, 1)
    line = _grown(Rectangle(left, top, right, bottom), line_width // 2, image_size)
    return Outline(line, line_width, _grown(line, edge_width, image_size), edge_width)


def _grown(rectangle: Rectangle, by: int, image_size: tuple[int, int]) -> Rectangle:
    """Return a rectangle with its sides moved outwards; in the image, and a pixel at least."""
    height, width = image_size
    left, top = min(rectangle.left, width - 1), min(rectangle.top, height - 1)
    right, bottom = max(rectangle.right, left + 1), max(rectangle.bottom, top + 1)
    return Rectangle(
        max(left - by, 0), max(top - by, 0), min(right + by, width), min(bottom + by, height)
    )


def _draw_outline(image: np.ndarray, outline: Outline, colour: RGB) -> None:
    paint, ink = np.array(colour, np.uint8), np.array(ink_on(colour), np.uint8)
    for part in _frame(image, outline.edge, outline.edge_width):
        part[:] = (part >> 1) + (ink >> 1)  # half of it stays, so that the line is what one sees
    for part in _frame(image, outline.line, outline.line_width):
        part[:] = paint


def _frame(image: np.ndarray, outer: Rectangle, width: int) -> list[np.ndarray]:
    """Return the parts of an image along the inner side of a rectangle's edges."""
    left, top, right, bottom = outer
    below, above = min(top + width, bottom), max(bottom - width, top)
    rows = [image[top:below, left:right], image[max(above, below) : bottom, left:right]]
    beside, before = min(left + width, right), max(right - width, left)
    between = image[below : max(above, below)]
    return [*rows, between[:, left:beside], between[:, max(before, beside) : right]]


def _draw_labels(
    image: np.ndarray, boxes: Sequence[Rectangle], texts: Sequence[str], colours: Sequence[RGB]
) -> None:
    """Draw a label at each box with its outline, the first on top."""
    size = image.shape[0], image.shape[1]
    letters = default_font_size(size)
    if label_height(letters) > MAX_LABEL_HEIGHT * size[0]:
        return
    placer = LabelPlacer(size, boxes, label_height(letters))
    placed = []
    for box, text, colour in zip(boxes, texts, colours, strict=True):
        if text and not placer.is_full:
            label = label_image(text, letters, colour, size[1])
            if place := placer.place(box, label.shape[1]):
                placed.append((place, label))
    for (left, top, right, bottom), label in reversed(placed):
        image[top:bottom, left:right] = label
