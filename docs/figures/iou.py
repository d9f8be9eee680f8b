"""Boxes and their targets under IoU, GIoU, DIoU and CIoU, by docs/blocks/iou.py."""

import numpy as np

from docs.figures.drawing import Axes, Figure
from docs.figures.pictures import block
from duet.backend import ops

WORDS = {
    "en": ("inside", "side by side", "apart", "other shape"),
    "zh": ("包含", "并排", "分开", "形状不同"),
}
PANEL, LEFT, TOP = 104, 64, 34


def draw_iou(language: str) -> Figure:
    """The four pairs of boxes of docs/blocks/iou.py, each with its IoU, GIoU, DIoU and CIoU."""
    labels = WORDS[language]
    ran = block("iou")
    pairs = list(ran["pairs"].values())
    boxes, targets = (ops.tensor(np.float32(side)) for side in zip(*pairs, strict=True))
    table = {name: measure(boxes, targets) for name, measure in ran["measures"].items()}
    figure = Figure(TOP + 226, language)
    for place, (label, (box, target)) in enumerate(zip(labels, pairs, strict=True)):
        x = LEFT + place * PANEL
        figure.text(x + PANEL / 2, 20, label, "middle bold")
        for (cx, cy, width, height), style in (
            (_hull(box, target), "stroke thin s-line dashed"),
            (target, "t-orange s-orange two"),
            (box, "t-blue s-blue two"),
        ):
            left, top = x + cx - width / 2, TOP + cy - height / 2
            figure.rectangle(left, top, width, height, style)
        centres = [(x + cx, TOP + cy) for cx, cy, _, _ in (target, box)]
        figure.line(centres, "stroke s-ink")
    for row, (name, numbers) in enumerate(table.items()):
        y = TOP + 132 + 25 * row
        if row % 2 == 0:
            figure.rectangle(0, y - 18, figure.width, 25, "t-line")
        figure.text(8, y, name, "bold")
        for place, value in enumerate(ops.to_numpy(numbers).tolist()):
            middle = LEFT + place * PANEL + PANEL / 2
            figure.text(middle, y, f"{value:.2f}".replace("-", "−"), "middle")
    return figure


def _hull(*boxes: tuple[float, ...]) -> tuple[float, float, float, float]:
    """Return the smallest box around some boxes, cxcywh."""
    both = np.array(boxes)
    low = (both[:, :2] - both[:, 2:] / 2).min(axis=0)
    high = (both[:, :2] + both[:, 2:] / 2).max(axis=0)
    return (*((low + high) / 2).tolist(), *(high - low).tolist())


AXES = {
    "en": ("start", "target", "mean error of 6,860 boxes", "steps"),
    "zh": ("起点", "目标", "6,860 个框的平均误差", "步数"),
}
START = np.array([[2.4, 2.2, 2.4, 0.9]])  # cxcywh
TARGET = np.array([[5.4, 4.2, 1.6, 2.4]])
STEPS, MOST = 200, 5
HUE = {"IoU": "red", "GIoU": "orange", "DIoU": "green", "CIoU": "blue"}
LINE_WIDTH = {"CIoU": "wide"}
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


def draw_convergence(language: str) -> Figure:
    """Boxes that descend to their targets under each measure, by docs/blocks/iou.py."""
    start, target, measure, steps = AXES[language]
    figure = Figure(490, language)
    for (box,), hue, label in ((START, "purple", start), (TARGET, "ink", target)):
        x, y, width, height = box * SCENE_SCALE
        left, top = x - width / 2, SCENE_TOP + y - height / 2 - 30
        figure.rectangle(left, top, width, height, f"t-{hue} s-{hue} two")
        figure.text(left + width / 2, top - 7, label, "middle bold")
    for place, name in enumerate(HUE):
        figure.line(centres(name), f"stroke {LINE_WIDTH.get(name, '')} s-{HUE[name]}")
        y = 60 + 30 * place
        figure.line([(270, y - 5), (306, y - 5)], f"stroke wide s-{HUE[name]}")
        figure.text(316, y, name, "bold")
    axes = Axes(figure, (48, 256, 412, 180), (0, STEPS), (0, MOST))
    figure.text(8, 240, measure, "bold")
    figure.text(460, 482, steps, "end bold")
    axes.frame(range(0, STEPS + 1, 50), range(MOST + 1))
    for name, error in block("iou")["curves"].items():
        axes.curve(range(STEPS + 1), error, f"s-{HUE[name]} {LINE_WIDTH.get(name, '')}")
    return figure
