"""Boxes that descend to their targets under each measure, by docs/blocks/iou.py."""

from __future__ import annotations

import numpy as np

from docs.figures.blocks import block
from docs.figures.drawing import Axes, Figure
from duet.backend import ops

WORDS = {
    "en": ("Mean error of boxes that descend by 1 − IoU, GIoU, DIoU or CIoU",
           "start", "target", "mean error of 6,860 boxes", "steps"),
    "zh": ("框按 1 − IoU、GIoU、DIoU、CIoU 的梯度下降时的平均误差",
           "起点", "目标", "6,860 个框的平均误差", "步数"),
}  # fmt: skip
START = np.array([[2.4, 2.2, 2.4, 0.9]])  # cxcywh
TARGET = np.array([[5.4, 4.2, 1.6, 2.4]])
STEPS, MOST = 200, 5
HUE = {"IoU": "red", "GIoU": "orange", "DIoU": "green", "CIoU": "blue"}
WIDTH = {"CIoU": "wide"}
SCENE_SCALE, SCENE_TOP = 30, 36


def centres(name: str) -> list[tuple[float, float]]:
    """Return where the centre of the one box is after each step."""
    ran = block("iou")
    boxes, target = START.astype(np.float32), ops.tensor(np.float32(TARGET))
    found = []
    for step in range(STEPS + 1):
        found.append((boxes[0, 0] * SCENE_SCALE, SCENE_TOP + boxes[0, 1] * SCENE_SCALE - 30))
        overlap = float(ops.to_numpy(ran["measures"]["IoU"](ops.tensor(boxes), target))[0])
        rate = np.float32((0.1 if step < 0.8 * STEPS else 0.01) * (2 - overlap))
        boxes = boxes - rate * ran["gradient"](ran["measures"][name], boxes, target)
    return found


def draw(language: str) -> Figure:
    title, start, target, measure, steps = WORDS[language]
    figure = Figure(490, title, language)
    for (box,), hue, label in ((START, "purple", start), (TARGET, "ink", target)):
        x, y, width, height = box * SCENE_SCALE
        left, top = x - width / 2, SCENE_TOP + y - height / 2 - 30
        figure.rectangle(left, top, width, height, f"t-{hue} s-{hue} two")
        figure.text(left + width / 2, top - 7, label, "middle bold")
    for place, name in enumerate(HUE):
        figure.line(centres(name), f"stroke {WIDTH.get(name, '')} s-{HUE[name]}")
        y = 60 + 30 * place
        figure.line([(270, y - 5), (306, y - 5)], f"stroke wide s-{HUE[name]}")
        figure.text(316, y, name, "bold")
    axes = Axes(figure, (48, 256, 412, 180), (0, STEPS), (0, MOST))
    figure.text(8, 240, measure, "bold")
    figure.text(460, 482, steps, "end bold")
    axes.frame(range(0, STEPS + 1, 50), range(MOST + 1))
    for name, error in block("iou")["curves"].items():
        axes.curve(range(STEPS + 1), error, f"s-{HUE[name]} {WIDTH.get(name, '')}")
    return figure
