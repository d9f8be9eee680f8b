"""Labels of a photograph: their file, and good and bad ones."""

import numpy as np

from docs.figures.drawing import HUES, WIDTH, Figure
from docs.figures.pictures import CUP, on_picture, photograph
from duet.utils.geometry.boxes import pairwise_iou, xyxy_to_cxcywh

WORDS = {
    "en": ("class", "centre x, y", "width", "height"),
    "zh": ("类别", "中心 x、y", "宽", "高"),
}
NAMES = ("cup", "table")
LEFT, TOP = 24, 26
SCALE = (WIDTH - LEFT - 8) / 600  # of a photograph of 600 px


def draw_label_format(language: str) -> Figure:
    """A photograph above the lines of its label file."""
    class_word, centre, width_word, height_word = WORDS[language]
    photo = photograph("cup.jpg")
    height, width = photo.size
    boxes, tall = photo.objects.boxes_xyxy, height * SCALE
    lines = xyxy_to_cxcywh(boxes) / np.tile([width, height], 2)
    figure = Figure(TOP + tall + 66 + 24 * len(lines), language)
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


QUALITIES = {
    "en": ("good", "loose", "cut off", "shifted", "two in one", "one missing"),
    "zh": ("好", "太松", "切掉一块", "偏移", "两个物体一个框", "漏标一个"),
}
CUT_LEFT, CUT_WIDTH, CUT_HEIGHT = 70, 400, 344  # of the photograph, pixels
PANEL, GAP, PANEL_TOP = 154, 9, 26
PANEL_SCALE = PANEL / CUT_WIDTH
GOOD, SPOON = np.concatenate([CUP.min(axis=0), CUP.max(axis=0)]), np.array([326, 66, 424, 327])
CUPS = (GOOD, GOOD + [-36, -18, 36, 34], GOOD - [0, 0, 0, 72], GOOD + [55, 40, 55, 40],
        [*GOOD[:2], *SPOON[2:]], GOOD)  # fmt: skip
WITH_SPOON = (True, True, True, True, False, False)


def draw_label_quality(language: str) -> Figure:
    """A good label beside bad ones, each with the IoU that is left of it."""
    labels = QUALITIES[language]
    tall = CUT_HEIGHT * PANEL_SCALE
    figure = Figure(2 * (PANEL_TOP + tall + GAP) - GAP, language)
    pixels = photograph("cup.jpg").decode()[:CUT_HEIGHT, CUT_LEFT : CUT_LEFT + CUT_WIDTH]
    for place, (label, cup, spoon) in enumerate(zip(labels, CUPS, WITH_SPOON, strict=True)):
        x, y = place % 3 * (PANEL + GAP), PANEL_TOP + place // 3 * (PANEL_TOP + tall + GAP)
        iou = pairwise_iou(np.array([cup]), GOOD[None])[0, 0]
        figure.text(x, y - 8, label, "bold")
        figure.text(x + PANEL, y - 8, f"{iou:.2f}", "end f-soft")
        figure.image(pixels, x, y, PANEL, tall)
        for class_index, box in enumerate((cup, SPOON) if spoon else (cup,)):
            inside = np.subtract(box, [CUT_LEFT, 0, CUT_LEFT, 0])
            on_picture(figure, inside, class_index, (x, y), PANEL_SCALE)
    return figure
