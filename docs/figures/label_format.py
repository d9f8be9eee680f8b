"""A photograph above the lines of its label file."""

from __future__ import annotations

import numpy as np

from docs.figures.drawing import HUES, WIDTH, Figure
from docs.figures.pictures import on_picture, photograph
from duet.utils.geometry.boxes import xyxy_to_cxcywh

WORDS = {
    "en": ("A label file: a line for each object, its centre and size as parts of the image",
           "class", "centre x, y", "width", "height"),
    "zh": ("标注文件：每行一个物体，中心与宽高是相对图像边长的比例",
           "类别", "中心 x、y", "宽", "高"),
}  # fmt: skip
NAMES = ("cup", "table")
LEFT, TOP = 24, 26
SCALE = (WIDTH - LEFT - 8) / 600  # of a photograph of 600 px


def draw(language: str) -> Figure:
    title, class_word, centre, width_word, height_word = WORDS[language]
    photo = photograph("cup.jpg")
    height, width = photo.size
    boxes, tall = photo.objects.boxes_xyxy, height * SCALE
    lines = xyxy_to_cxcywh(boxes) / np.tile([width, height], 2)
    figure = Figure(TOP + tall + 66 + 24 * len(lines), title, language)
    figure.image(photo.decode(), LEFT, TOP, width * SCALE, tall)
    for number, box in enumerate(boxes):
        on_picture(figure, box, number, (LEFT, TOP), SCALE)
    _measure(figure, boxes[0] * SCALE)
    y = TOP + tall + 34
    for x, word in ((14, class_word), (120, centre), (276, width_word), (366, height_word)):
        figure.text(x, y, word, "bold")
    for number, numbers in enumerate(lines.tolist()):
        y = TOP + tall + 60 + 24 * number
        hue = HUES[number % len(HUES)]
        figure.rectangle(8, y - 16, 464, 21, f"t-{hue}", 4)
        figure.text(14, y, str(number), "code bold")
        figure.text(34, y, NAMES[number], "f-soft")
        for x, value in zip((120, 196, 276, 366), numbers, strict=True):
            figure.text(x, y, f"{value:.4f}", "code")
    return figure


def _measure(figure: Figure, box_xyxy: np.ndarray) -> None:
    """Draw the centre of a box, and its width and height outside the picture."""
    left, top, right, bottom = box_xyxy.tolist()
    x, y = LEFT + (left + right) / 2, TOP + (top + bottom) / 2
    for style in ("stroke halo", "stroke light-line"):
        figure.line([(LEFT, y), (x - 7, y)], style)
        figure.line([(x, TOP), (x, y - 7)], style)
    figure.dot(x, y, 6, "stroke halo")
    figure.dot(x, y, 5, "light")
    figure.text(LEFT - 10, y + 5, "y", "end bold")
    figure.text(x, TOP - 7, "x", "middle bold")
