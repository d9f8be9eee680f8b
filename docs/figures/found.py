"""What models find in photographs and drawn images; `detect.py` has stored it in docs/*.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from docs.figures.detect import (
    CONFIDENCE,
    DETECTIONS,
    MASKS,
    MASKS_CONFIDENCE,
    SHOWN,
    SORTED,
)
from docs.figures.drawing import HUES, PLATE, WIDTH, Figure, Point, number, plate_width
from docs.figures.pictures import (
    CLASS_NAMES,
    FOUND_IN_PHOTOS,
    class_image,
    on_picture,
    photograph,
    shapes_file,
)
from duet.utils.data.shapes.dataset import CLASSES
from duet.utils.files.json_files import read_json

GAP = 8
PHOTO_ROWS = (("cat.jpg", "astronaut.jpg"), ("photographer.jpg", "cup.jpg"))
COLUMNS, BELOW = 5, 44
PANEL = (WIDTH - (COLUMNS - 1) * GAP) / COLUMNS
Label = tuple[float, float, float]  # left, top, width


def draw_found_shapes(language: str) -> Figure:
    """What the model of `make demo` finds in images of its validation split."""
    return beside(language, DETECTIONS, CONFIDENCE)


def draw_found_masks(language: str) -> Figure:
    """What a segmentation finds."""
    return beside(language, MASKS, MASKS_CONFIDENCE)


def draw_found_classes(language: str) -> Figure:
    """What a classifier says of ten images."""
    found = read_json(SORTED)["images"]
    figure = Figure(2 * (PANEL + BELOW) + GAP, language)
    for place, (index, (best,)) in enumerate(found.items()):
        x, y = place % COLUMNS * (PANEL + GAP), place // COLUMNS * (PANEL + BELOW + GAP)
        figure.image(class_image(int(index)), x, y, PANEL, PANEL)
        right = best["name"] == list(CLASSES)[int(index) % len(CLASSES)]
        style = "" if right else " f-red"
        colour, shape = best["name"].split()
        figure.text(x, y + PANEL + 18, shape, f"bold{style}")
        figure.text(x, y + PANEL + 37, f"{colour} {best['score']:.2f}", style)
    return figure


def draw_photos(language: str) -> Figure:
    """What the public YOLOv5n finds in the photographs of data/images."""
    found = read_json(FOUND_IN_PHOTOS)["images"]
    names = sorted({one["name"] for rows in found.values() for one in rows})
    rows = [[photograph(name).decode() for name in row] for row in PHOTO_ROWS]
    figure = Figure(sum(map(height_beside, rows)) + GAP, language)
    y = 0.0
    for row, pictures in zip(PHOTO_ROWS, rows, strict=True):
        put_row(figure, pictures, [found[name] for name in row], names, y)
        y += height_beside(pictures) + GAP
    return figure


def beside(language: str, path: Path, confidence: float) -> Figure:
    """Draw images of the built-in dataset side by side with what `detect.py` stored."""
    stored = read_json(path)["images"]
    found = [[one for one in stored[str(index)] if one["score"] >= confidence] for index in SHOWN]
    pictures = [shapes_file(index).image for index in SHOWN]
    figure = Figure(height_beside(pictures), language)
    put_row(figure, pictures, found, CLASS_NAMES, 0)
    return figure


def height_beside(pictures: Sequence[np.ndarray]) -> float:
    """Return the height at which pictures side by side are as wide as a figure."""
    shapes = sum(image.shape[1] / image.shape[0] for image in pictures)
    return (WIDTH - GAP * (len(pictures) - 1)) / shapes


def put_row(
    figure: Figure,
    pictures: Sequence[np.ndarray],
    found: Sequence[Sequence[Mapping[str, Any]]],
    class_names: Sequence[str],
    top: float,
) -> None:
    """Draw images side by side with what was found in each."""
    x, tall = 0.0, height_beside(pictures)
    for image, rows in zip(pictures, found, strict=True):
        put_found(figure, image, rows, class_names, (x, top), tall / image.shape[0])
        x += image.shape[1] * tall / image.shape[0] + GAP


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
