"""One image in three inputs: stretched, letterboxed, and in a batch of rectangles."""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np

from docs.figures.drawing import Figure
from docs.figures.pictures import wide_photograph
from duet.utils.data.image.letterbox import fit_long_side, letterbox, resize
from duet.utils.data.loading.batches import RECTANGLE_MARGIN, rectangle

WORDS = {
    "en": ("An image of 640 × 360 stretched, in a square with padding, and in a rectangle",
           "image", "stretched", "letterbox", "rectangle", "padding"),
    "zh": ("640 × 360 的图像：直接拉伸、填充成正方形、放进矩形批次",
           "图像", "直接拉伸", "letterbox", "矩形批次", "填充"),
}  # fmt: skip
FILE = 360, 640
LONG_SIDE, STRIDE = 640, 32
SCALE = 148 / LONG_SIDE
FILE_TOP, TOP = 34, 248


class Input(NamedTuple):
    """An image as the network takes it."""

    pixels: np.ndarray  # (height, width, 3) uint8 BGR
    padding: float  # the part of it that is no image


def inputs(image: np.ndarray) -> list[Input]:
    """Return an image of FILE stretched, letterboxed, and as validation puts it in a rectangle."""
    square = LONG_SIDE, LONG_SIDE
    placed = [
        fit_long_side(FILE, LONG_SIDE, size)
        for size in (square, rectangle([FILE], LONG_SIDE, STRIDE, RECTANGLE_MARGIN))
    ]
    shares = [math.prod(one.resized_size) / math.prod(one.input_size) for one in placed]
    boxed = [letterbox(image, one) for one in placed]
    return [Input(resize(image, square), 0.0), *map(Input, boxed, [1 - x for x in shares])]


def draw(language: str) -> Figure:
    title, image_word, *labels, padding = WORDS[language]
    image = cv2.resize(wide_photograph("cup.jpg", 10), FILE[::-1], interpolation=cv2.INTER_LINEAR)
    figure = Figure(TOP + 148 + 48, title, language)
    figure.text(8, 22, f"{image_word} 640 × 360", "bold")
    figure.image(image, 8, FILE_TOP, FILE[1] * 0.45, FILE[0] * 0.45)
    for place, (label, made) in enumerate(zip(labels, inputs(image), strict=True)):
        height, width = made.pixels.shape[:2]
        x, shown_width, shown_height = 8 + place * 158, width * SCALE, height * SCALE
        figure.text(x, TOP - 12, label, "bold")
        figure.image(made.pixels, x, TOP, shown_width, shown_height)
        figure.rectangle(x, TOP, shown_width, shown_height, "stroke s-blue")
        figure.text(x, TOP + shown_height + 20, f"{width} × {height}")
        figure.text(x, TOP + shown_height + 40, f"{padding} {made.padding:.0%}", "f-soft")
    return figure
