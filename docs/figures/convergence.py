"""Boxes that descend to their targets under each measure, by the project's gradients."""

from __future__ import annotations

from functools import cache

import numpy as np

from docs.figures.drawing import Axes, Figure
from docs.figures.iou_family import FAMILY, descend, regression_cases

WORDS = {
    "en": ("Mean error of boxes that descend by 1 − IoU, GIoU, DIoU or CIoU",
           "start", "target", "mean error of 6,860 boxes", "steps"),
    "zh": ("边框按 1 − IoU、GIoU、DIoU、CIoU 的梯度下降时的平均误差",
           "起点", "目标", "6860 个框的平均误差", "步数"),
}  # fmt: skip
START = np.array([[2.4, 2.2, 2.4, 0.9]])  # cxcywh
TARGET = np.array([[5.4, 4.2, 1.6, 2.4]])
STEPS, PLACES, MOST = 200, 20, 5
HUE = dict(zip(FAMILY, ("red", "orange", "green", "blue"), strict=True))
WIDTH = {"CIoU": "wide"}
SCENE_SCALE, SCENE_TOP = 30, 36


@cache  # both languages show the same
def paths() -> dict[str, np.ndarray]:
    """Return the boxes (STEPS + 1, 4) of the one pair, for each measure."""
    return {name: descend(name, START, TARGET, STEPS)[:, 0] for name in FAMILY}


@cache
def errors() -> dict[str, np.ndarray]:
    """Return the mean sum of the four errors of all pairs after each step, (STEPS + 1,)."""
    start, target = regression_cases(PLACES)
    return {
        name: np.abs(descend(name, start, target, STEPS) - target).sum(axis=2).mean(axis=1)
        for name in FAMILY
    }


def draw(language: str) -> Figure:
    title, start, target, measure, steps = WORDS[language]
    figure = Figure(490, title, language)
    for (box,), hue, label in ((START, "purple", start), (TARGET, "ink", target)):
        x, y, width, height = box * SCENE_SCALE
        left, top = x - width / 2, SCENE_TOP + y - height / 2 - 30
        figure.rectangle(left, top, width, height, f"t-{hue} s-{hue} two")
        figure.text(left + width / 2, top - 7, label, "middle bold")
    for place, (name, boxes) in enumerate(paths().items()):
        centres = [(x * SCENE_SCALE, SCENE_TOP + y * SCENE_SCALE - 30) for x, y in boxes[:, :2]]
        figure.line(centres, f"stroke {WIDTH.get(name, '')} s-{HUE[name]}")
        y = 60 + 30 * place
        figure.line([(270, y - 5), (306, y - 5)], f"stroke wide s-{HUE[name]}")
        figure.text(316, y, name, "bold")
    axes = Axes(figure, (48, 256, 412, 180), (0, STEPS), (0, MOST))
    figure.text(8, 240, measure, "bold")
    figure.text(460, 482, steps, "end bold")
    axes.frame([(float(x), str(x)) for x in range(0, STEPS + 1, 50)],
               [(y, f"{y:g}") for y in range(MOST + 1)])  # fmt: skip
    for name, error in errors().items():
        axes.curve(range(STEPS + 1), error, f"s-{HUE[name]} {WIDTH.get(name, '')}")
    return figure
