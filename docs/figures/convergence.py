"""A box that descends to its target under each measure, by the project's gradients."""

from __future__ import annotations

from functools import cache

import numpy as np

from docs.figures.drawing import Axes, Figure
from docs.figures.iou_family import FAMILY, descend, values

WORDS = {
    "en": ("IoU of a box with its target while it descends by 1 − IoU, GIoU, DIoU or CIoU",
           "start", "target", "IoU", "steps"),
    "zh": ("边框按 1 − IoU、GIoU、DIoU、CIoU 的梯度下降时与目标的 IoU",
           "起点", "目标", "IoU", "步数"),
}  # fmt: skip
START = np.array([2.4, 2.2, 2.4, 0.9])  # cxcywh
TARGET = np.array([5.4, 4.2, 1.6, 2.4])
STEPS, RATE = 200, 0.25  # the rate falls to 0
HUE = dict(zip(FAMILY, ("line", "orange", "green", "blue"), strict=True))
WIDTH = {"CIoU": "wide"}
SCENE_SCALE, SCENE_TOP = 30, 36


@cache  # both languages show the same
def paths() -> dict[str, np.ndarray]:
    """Return the boxes (STEPS + 1, 4) of each measure."""
    return {name: descend(name, START, TARGET, STEPS, RATE) for name in FAMILY}


def draw(language: str) -> Figure:
    title, start, target, measure, steps = WORDS[language]
    figure = Figure(490, title, language)
    found = paths()
    for box, hue, label in ((START, "purple", start), (TARGET, "ink", target)):
        x, y, width, height = box * SCENE_SCALE
        left, top = x - width / 2, SCENE_TOP + y - height / 2 - 30
        figure.rectangle(left, top, width, height, f"t-{hue} s-{hue} two")
        figure.text(left + width / 2, top - 7, label, "middle bold")
    for place, (name, boxes) in enumerate(found.items()):
        centres = [(x * SCENE_SCALE, SCENE_TOP + y * SCENE_SCALE - 30) for x, y in boxes[:, :2]]
        figure.line(centres, f"stroke {WIDTH.get(name, '')} s-{HUE[name]}")
        y = 60 + 30 * place
        figure.line([(270, y - 5), (306, y - 5)], f"stroke wide s-{HUE[name]}")
        figure.text(316, y, name, "bold")
    axes = Axes(figure, (48, 256, 420, 180), (0, STEPS), (0, 1))
    figure.text(8, 240, measure, "bold")
    figure.text(468, 482, steps, "end bold")
    axes.frame([(float(x), str(x)) for x in range(0, STEPS + 1, 50)],
               [(y, f"{y:g}") for y in (0, 0.5, 1)])  # fmt: skip
    for name, boxes in found.items():
        overlap = values(boxes, np.repeat(TARGET[None], len(boxes), axis=0))["IoU"]
        axes.curve(range(STEPS + 1), overlap, f"s-{HUE[name]} {WIDTH.get(name, '')}")
    return figure
