"""The four pairs of boxes of docs/blocks/iou.py, each with its IoU, GIoU, DIoU and CIoU."""

from __future__ import annotations

import numpy as np

from docs.figures.blocks import block
from docs.figures.drawing import Figure
from duet.backend import ops

WORDS = {
    "en": ("Four pairs of boxes and what IoU, GIoU, DIoU and CIoU say of them",
           ("inside", "side by side", "apart", "other shape")),
    "zh": ("四对框及其 IoU、GIoU、DIoU、CIoU", ("包含", "并排", "分开", "形状不同")),
}  # fmt: skip
PANEL, LEFT, TOP = 104, 64, 34


def draw(language: str) -> Figure:
    title, labels = WORDS[language]
    ran = block("iou")
    pairs = list(ran["pairs"].values())
    boxes, targets = (ops.tensor(np.float32(side)) for side in zip(*pairs, strict=True))
    table = {name: measure(boxes, targets) for name, measure in ran["measures"].items()}
    figure = Figure(TOP + 226, title, language)
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
