"""What figures show: photographs, images of the built-in dataset, and what blocks compute."""

import contextlib
import io
import runpy
from collections.abc import Sequence
from functools import cache
from typing import Any

import cv2
import numpy as np

from docs.figures.drawing import HUES, Figure, Point
from duet.utils.data.image.decoding import LabelledImage, Objects, SourceImage
from duet.utils.data.image.letterbox import fit_letterbox, letterbox
from duet.utils.data.randomness import sample_generator
from duet.utils.data.shapes.dataset import CLASSES, ShapesConfig, draw_file
from duet.utils.data.shapes.scene import OUTLINES, Scene, draw_one_shape
from duet.utils.files.json_files import read_json
from duet.utils.geometry.boxes import Polygons, starts_of
from duet.utils.project import PROJECT

SHEET_SIDE = 160  # pixels of a photograph
CLASS_NAMES = tuple(OUTLINES)
CLASS_IMAGES = range(1200, 1210)  # behind those of the dataset, one of each class
PHOTOGRAPHS = PROJECT / "data" / "images"
FOUND_IN_PHOTOS = PROJECT / "docs" / "photos.json"  # by detect.py
PHOTOS = ("cup.jpg", "cat.jpg", "astronaut.jpg", "photographer.jpg")
CUP = np.array([  # its outline, by hand
    (174, 105), (180, 70), (205, 40), (240, 22), (285, 18), (330, 25), (365, 45), (393, 75),
    (402, 105), (400, 130), (393, 165), (383, 195), (365, 220), (338, 240), (320, 262), (300, 283),
    (280, 286), (250, 280), (240, 290), (225, 304), (210, 307), (198, 297), (201, 268), (210, 240),
    (221, 233), (205, 210), (190, 180), (178, 140),
], float)  # fmt: skip


@cache
def photograph(name: str) -> SourceImage:
    """Return a photograph with the boxes that the public YOLOv5n found; the cup has an outline."""
    found = read_json(FOUND_IN_PHOTOS)["images"]
    classes = sorted({one["name"] for rows in found.values() for one in rows})
    pixels = cv2.imread(str(PHOTOGRAPHS / name))
    names = [one["name"] for one in found[name]]
    boxes = np.array([one["box_xyxy"] for one in found[name]])
    outlines = [CUP if one == "cup" else np.zeros((0, 2)) for one in names]
    polygons = Polygons(np.concatenate(outlines), starts_of(np.array([*map(len, outlines)])))
    objects = Objects(np.array([classes.index(one) for one in names]), boxes, polygons)
    size = pixels.shape[:2]
    return SourceImage(size, objects, size, lambda: pixels.copy())


def wide_photograph(name: str, top: int) -> np.ndarray:
    """Return a part of a photograph, 16 by 9, as wide as it and from a row on."""
    pixels = photograph(name).decode()
    return pixels[top : top + round(pixels.shape[1] * 9 / 16)]


@cache
def sheet() -> np.ndarray:
    """Return a picture of many small objects: the photographs again and again, (H, W, 3) BGR."""
    tiles = []
    for name in PHOTOS:
        pixels = photograph(name).decode()
        place = fit_letterbox(pixels.shape[:2], (SHEET_SIDE, SHEET_SIDE))
        tiles.append(letterbox(pixels, place))
    rows = [np.hstack([tiles[(2 * row + row // 2 + column) % 4] for column in range(12)])
            for row in range(6)]  # fmt: skip
    return np.vstack(rows)


def shapes_file(index: int) -> Scene:
    """Return image `index` of the built-in dataset, before it is written as a JPEG."""
    return draw_file(ShapesConfig(), index)


def class_image(index: int) -> np.ndarray:
    """Return an image of a shape in a colour, as those of shapes-cls but square."""
    outline_and_hue = list(CLASSES.values())[index % len(CLASSES)]
    return draw_one_shape(sample_generator(0, 1, index), (96, 96), *outline_and_hue)


def put(figure: Figure, item: LabelledImage, at: Point, scale: float) -> None:
    """Put an image into a figure, with its boxes in the colours of their classes."""
    height, width = item.image.shape[:2]
    figure.image(item.image, *at, width * scale, height * scale)
    for box, class_index in zip(item.boxes_xyxy, item.class_index, strict=True):
        on_picture(figure, box, int(class_index), at, scale)


def on_picture(
    figure: Figure, box_xyxy: Sequence[float], class_index: int, at: Point, scale: float
) -> None:
    """Draw a box over an image: a light edge sets its line off from any picture."""
    hue = HUES[class_index % len(HUES)]
    figure.box(box_xyxy, "stroke halo", scale, at)
    figure.box(box_xyxy, f"stroke p-{hue}", scale, at)


@cache
def block(name: str) -> dict[str, Any]:
    """Run a block and return the functions and values that it leaves."""
    with contextlib.redirect_stdout(io.StringIO()):
        return runpy.run_path(str(PROJECT / "docs" / "blocks" / f"{name}.py"))
