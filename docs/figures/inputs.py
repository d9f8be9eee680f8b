"""Images in the inputs of a network, and detections on their way back."""

import math
from typing import NamedTuple

import cv2
import numpy as np

from docs.figures.drawing import Figure
from docs.figures.pictures import on_picture, photograph, wide_photograph
from duet.utils.data.image.letterbox import fit_long_side, letterbox, resize
from duet.utils.data.loading.batches import RECTANGLE_MARGIN, rectangle

WORDS = {
    "en": ("image", "stretched", "letterbox", "rectangle", "padding"),
    "zh": ("图像", "直接拉伸", "letterbox", "矩形批次", "填充"),
}
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


def draw_padding(language: str) -> Figure:
    """One image in three inputs: stretched, letterboxed, and in a batch of rectangles."""
    image_word, *labels, padding = WORDS[language]
    image = cv2.resize(wide_photograph("cup.jpg", 10), FILE[::-1], interpolation=cv2.INTER_LINEAR)
    figure = Figure(TOP + 148 + 48, language)
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


SIDES = {
    "en": ("input", "image"),
    "zh": ("输入", "图像"),
}
INPUT_SIDE = 320
BACK_TOP, BACK_GAP, BACK_LEFT = 32, 60, 62
BACK_SCALE = 0.32  # of both pictures


def draw_back_to_image(language: str) -> Figure:
    """A detection in the coordinates of the network's input, and mapped back to the image."""
    given, image = SIDES[language]
    photo = photograph("cup.jpg")
    place = fit_long_side(photo.size, INPUT_SIDE, (INPUT_SIDE, INPUT_SIDE))
    boxes = photo.objects.boxes_xyxy
    inputs = place.to_input(boxes)
    tall = photo.size[0] * BACK_SCALE
    figure = Figure(BACK_TOP + tall + 58, language)
    pictures = ((given, letterbox(photo.decode(), place), inputs),
                (image, photo.decode(), place.to_original(inputs)))  # fmt: skip
    x: float = BACK_LEFT
    for word, pixels, shown in pictures:
        height, width = pixels.shape[:2]
        y = BACK_TOP + (tall - height * BACK_SCALE) / 2
        figure.text(x, y - 10, f"{word} {width} × {height}", "bold")
        figure.image(pixels, x, y, width * BACK_SCALE, height * BACK_SCALE)
        on_picture(figure, shown[0], 0, (x, y), BACK_SCALE)
        corners = ", ".join(f"{value:.0f}" for value in shown[0])
        figure.text(x, BACK_TOP + tall + 22, corners, "code")
        x += width * BACK_SCALE + BACK_GAP
    middle, edge = BACK_TOP + tall / 2, BACK_LEFT + INPUT_SIDE * BACK_SCALE
    figure.arrow([(edge + 10, middle), (edge + BACK_GAP - 10, middle)])
    (scale_y, scale_x), (top, left) = place.scale, place.padding
    steps = f"x = (x′ − {left}) / {scale_x:.3f},  y = (y′ − {top}) / {scale_y:.3f}"
    figure.text(BACK_LEFT, figure.height - 6, steps, "f-soft")
    return figure
