"""What the model of `make demo` finds in images of its validation split.

`detect_shapes.py` has written docs/detections.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from docs.figures.detect_shapes import DETECTIONS
from docs.figures.drawing import LETTERS, Figure, Point, text_width
from docs.figures.pictures import CLASS_NAMES, on_picture, shapes_file
from duet.utils.files.json_files import read_json

WORDS = {
    "en": ("Shapes that a model found after minutes of training on a CPU, with class and score",),
    "zh": ("在 CPU 上训练几分钟的模型检测出的图形，带类别与得分",),
}
GAP, WIDTH = 8, 480
LABEL = 20  # units high
Label = tuple[float, float, float]  # left, top, width


def draw(language: str) -> Figure:
    (title,) = WORDS[language]
    images = {int(index): found for index, found in read_json(DETECTIONS)["images"].items()}
    pictures = {index: shapes_file(index).image for index in images}
    first, *others = pictures
    tall = height_beside([pictures[index] for index in others], WIDTH - GAP * (len(others) - 1))
    scale = WIDTH / pictures[first].shape[1]
    upper = pictures[first].shape[0] * scale
    figure = Figure(upper + GAP + tall, title, language)
    put_found(figure, pictures[first], images[first], CLASS_NAMES, (0, 0), scale)
    x = 0.0
    for index in others:
        scale = tall / pictures[index].shape[0]
        put_found(figure, pictures[index], images[index], CLASS_NAMES, (x, upper + GAP), scale)
        x += pictures[index].shape[1] * scale + GAP
    return figure


def height_beside(pictures: Sequence[np.ndarray], width: float) -> float:
    """Return the height at which pictures side by side have this width together."""
    return width / sum(image.shape[1] / image.shape[0] for image in pictures)


def put_found(
    figure: Figure,
    image: np.ndarray,
    found: Sequence[Mapping[str, Any]],
    class_names: Sequence[str],
    at: Point,
    scale: float,
) -> None:
    """Draw an image with what was found in it."""
    height, width = image.shape[:2]
    figure.image(image, *at, width * scale, height * scale)
    for one in reversed(found):
        on_picture(figure, one["box_xyxy"], class_names.index(one["name"]), at, scale)
    taken: list[Label] = []
    for one in found:
        words = f"{one['name']} {one['score']:.2f}"
        box = [value * scale for value in one["box_xyxy"]]
        x, y, label_width = _place(box, text_width(words) + 6, width * scale, taken)
        taken.append((x, y, label_width))
        figure.rectangle(at[0] + x, at[1] + y, label_width, LABEL, "dark", 3)
        figure.text(at[0] + x + 3, at[1] + y + LETTERS, words, "light-text bold")


def _place(
    box: Sequence[float], width: float, picture_width: float, taken: Sequence[Label]
) -> Label:
    """Return left, top and width of a label at its box: above it, in it, or where no other is."""
    left, top, right, bottom = box
    places = [
        (min(max(x, 0), picture_width - width), max(y, 0), width)
        for y in (top - LABEL, top, bottom - LABEL, bottom)
        for x in (left, right - width)
    ]
    return next((place for place in places if not _meets(place, taken)), places[0])


def _meets(place: Label, taken: Sequence[Label]) -> bool:
    x, y, width = place
    return any(
        x < other_x + other_width and other_x < x + width and abs(y - other_y) < LABEL
        for other_x, other_y, other_width in taken
    )
