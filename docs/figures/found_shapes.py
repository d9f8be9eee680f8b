"""What the model of `make demo` finds in images of its validation split.

`detect.py` has written docs/detections.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from docs.figures.detect import CONFIDENCE, DETECTIONS, SHOWN
from docs.figures.drawing import HUES, PLATE, WIDTH, Figure, Point, number, plate_width
from docs.figures.pictures import CLASS_NAMES, on_picture, shapes_file
from duet.utils.files.json_files import read_json

WORDS = {
    "en": ("Shapes that a model found after minutes of training on a CPU, with class and score",),
    "zh": ("在 CPU 上训练几分钟的模型检测出的图形，带类别与得分",),
}
GAP = 8
Label = tuple[float, float, float]  # left, top, width


def draw(language: str) -> Figure:
    (title,) = WORDS[language]
    return beside(title, language, DETECTIONS, CONFIDENCE)


def beside(title: str, language: str, path: Path, confidence: float) -> Figure:
    """Draw images of the built-in dataset side by side with what `detect.py` stored."""
    stored = read_json(path)["images"]
    pictures = {index: shapes_file(index).image for index in SHOWN}
    tall = height_beside(list(pictures.values()), WIDTH - GAP * (len(SHOWN) - 1))
    figure = Figure(tall, title, language)
    x = 0.0
    for index, image in pictures.items():
        found = [one for one in stored[str(index)] if one["score"] >= confidence]
        scale = tall / image.shape[0]
        put_found(figure, image, found, CLASS_NAMES, (x, 0), scale)
        x += image.shape[1] * scale + GAP
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
    """Draw an image with what was found in it: masks, boxes and, over them, labels."""
    height, width = image.shape[:2]
    figure.image(image, *at, width * scale, height * scale)
    for one in reversed(found):
        if points := one.get("outline"):
            path = "L".join(f"{number(at[0] + x * scale)} {number(at[1] + y * scale)}"
                            for x, y in points)  # fmt: skip
            hue = HUES[class_names.index(one["name"]) % len(HUES)]
            figure.add("path", d=f"M{path}Z", class_=f"f-{hue} strong p-{hue} wide")
        on_picture(figure, one["box_xyxy"], class_names.index(one["name"]), at, scale)
    taken: list[Label] = []
    for one in found:
        words = f"{one['name']} {one['score']:.2f}"
        box = [value * scale for value in one["box_xyxy"]]
        x, y, label_width = _place(box, plate_width(words), width * scale, taken)
        taken.append((x, y, label_width))
        figure.plate(at[0] + x, at[1] + y, words)


def _place(
    box: Sequence[float], width: float, picture_width: float, taken: Sequence[Label]
) -> Label:
    """Return left, top and width of a label at its box: above it, in it, or where no other is."""
    left, top, right, bottom = box
    places = [
        (min(max(x, 0), picture_width - width), max(y, 0), width)
        for y in (top - PLATE, top, bottom - PLATE, bottom)
        for x in (left, right - width)
    ]
    return next((place for place in places if not _meets(place, taken)), places[0])


def _meets(place: Label, taken: Sequence[Label]) -> bool:
    x, y, width = place
    return any(
        x < other_x + other_width and other_x < x + width and abs(y - other_y) < PLATE
        for other_x, other_y, other_width in taken
    )
