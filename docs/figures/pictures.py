"""Pictures for figures: those of the built-in dataset, which are drawn and belong to nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from docs.figures.drawing import HUES, Figure, Point
from duet.utils.data.image.decoding import LabelledImage, Objects, SourceImage
from duet.utils.data.randomness import sample_generator
from duet.utils.data.shapes.dataset import ShapesConfig, draw_file
from duet.utils.data.shapes.scene import OUTLINES, Scene, draw_scene

CLASS_NAMES = tuple(OUTLINES)


def shapes(index: int, size: tuple[int, int]) -> Scene:
    """Return a scene of shapes, another for each index, drawn at (height, width)."""
    return draw_scene(sample_generator(0, 0, index), size)


def shapes_file(index: int) -> Scene:
    """Return image `index` of the built-in dataset, before it is written as a JPEG."""
    return draw_file(ShapesConfig(), index)


def source(scene: Scene) -> SourceImage:
    """Return a drawn image as what training reads from a file."""
    objects = Objects(scene.class_index, scene.boxes_xyxy, None)
    size = scene.image.shape[:2]
    return SourceImage(size, objects, size, _giver(scene.image))


def _giver(image: np.ndarray) -> Callable[[], np.ndarray]:
    return lambda: image


def put(
    figure: Figure,
    item: LabelledImage | Scene,
    at: Point,
    scale: float,
    boxes: Sequence[int] | None = None,
) -> None:
    """Put an image into a figure, with its boxes in the colours of their classes.

    boxes: which of them; None for all.
    """
    height, width = item.image.shape[:2]
    figure.image(item.image, *at, width * scale, height * scale)
    rows = range(len(item.boxes_xyxy)) if boxes is None else boxes
    for row in rows:
        on_picture(figure, item.boxes_xyxy[row], int(item.class_index[row]), at, scale)


def on_picture(
    figure: Figure, box_xyxy: Sequence[float], class_index: int, at: Point, scale: float
) -> None:
    """Draw a box over an image: a light edge sets its line off from any picture."""
    hue = HUES[class_index % len(HUES)]
    figure.box(box_xyxy, "stroke halo", scale, at)
    figure.box(box_xyxy, f"stroke p-{hue}", scale, at)
