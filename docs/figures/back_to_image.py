"""A detection in the coordinates of the network's input, and mapped back to the image."""

from __future__ import annotations

from docs.figures.drawing import Figure
from docs.figures.pictures import on_picture, photograph
from duet.utils.data.image.letterbox import fit_long_side, letterbox

WORDS = {
    "en": ("A detection of a cup in the input of 320 × 320, and the same in the image of 600 × 400",
           "input", "image"),
    "zh": ("320 × 320 输入中检测出的杯子，以及映射回 600 × 400 图像后的同一个框",
           "输入", "图像"),
}  # fmt: skip
SIDE = 320
TOP, GAP, LEFT = 32, 60, 62
SCALE = 0.32  # of both pictures


def draw(language: str) -> Figure:
    title, given, image = WORDS[language]
    photo = photograph("cup.jpg")
    place = fit_long_side(photo.size, SIDE, (SIDE, SIDE))
    boxes = photo.objects.boxes_xyxy
    inputs = place.to_input(boxes)
    tall = photo.size[0] * SCALE
    figure = Figure(TOP + tall + 58, title, language)
    pictures = ((given, letterbox(photo.decode(), place), inputs),
                (image, photo.decode(), place.to_original(inputs)))  # fmt: skip
    x: float = LEFT
    for word, pixels, shown in pictures:
        height, width = pixels.shape[:2]
        y = TOP + (tall - height * SCALE) / 2
        figure.text(x, y - 10, f"{word} {width} × {height}", "bold")
        figure.image(pixels, x, y, width * SCALE, height * SCALE)
        on_picture(figure, shown[0], 0, (x, y), SCALE)
        corners = ", ".join(f"{value:.0f}" for value in shown[0])
        figure.text(x, TOP + tall + 22, corners, "code")
        x += width * SCALE + GAP
    middle, edge = TOP + tall / 2, LEFT + SIDE * SCALE
    figure.arrow([(edge + 10, middle), (edge + GAP - 10, middle)])
    (scale_y, scale_x), (top, left) = place.scale, place.padding
    steps = f"x = (x′ − {left}) / {scale_x:.3f},  y = (y′ − {top}) / {scale_y:.3f}"
    figure.text(LEFT, figure.height - 6, steps, "f-soft")
    return figure
