"""A good label beside bad ones, each with the IoU that is left of it."""

from __future__ import annotations

import numpy as np

from docs.figures.drawing import Figure
from docs.figures.pictures import CUP, on_picture, photograph
from duet.utils.geometry.boxes import pairwise_iou

WORDS = {
    "en": ("A good label of a cup and a spoon, and five bad ones",
           ("good", "loose", "cut off", "shifted", "two in one", "one missing")),
    "zh": ("杯子和勺子的一个好标注，以及五个坏标注",
           ("好", "太松", "切掉一块", "偏移", "两个物体一个框", "漏标一个")),
}  # fmt: skip
LEFT, WIDTH, HEIGHT = 70, 400, 344  # of the photograph, pixels
PANEL, GAP, TOP = 154, 9, 26
SCALE = PANEL / WIDTH
GOOD, SPOON = np.concatenate([CUP.min(axis=0), CUP.max(axis=0)]), np.array([326, 66, 424, 327])
CUPS = (GOOD, GOOD + [-36, -18, 36, 34], GOOD - [0, 0, 0, 72], GOOD + [55, 40, 55, 40],
        [*GOOD[:2], *SPOON[2:]], GOOD)  # fmt: skip
WITH_SPOON = (True, True, True, True, False, False)


def draw(language: str) -> Figure:
    title, labels = WORDS[language]
    tall = HEIGHT * SCALE
    figure = Figure(2 * (TOP + tall + GAP) - GAP, title, language)
    pixels = photograph("cup.jpg").decode()[:HEIGHT, LEFT : LEFT + WIDTH]
    for place, (label, cup, spoon) in enumerate(zip(labels, CUPS, WITH_SPOON, strict=True)):
        x, y = place % 3 * (PANEL + GAP), TOP + place // 3 * (TOP + tall + GAP)
        iou = pairwise_iou(np.array([cup]), GOOD[None])[0, 0]
        figure.text(x, y - 8, label, "bold")
        figure.text(x + PANEL, y - 8, f"{iou:.2f}", "end f-soft")
        figure.image(pixels, x, y, PANEL, tall)
        for class_index, box in enumerate((cup, SPOON) if spoon else (cup,)):
            inside = np.subtract(box, [LEFT, 0, LEFT, 0])
            on_picture(figure, inside, class_index, (x, y), SCALE)
    return figure
