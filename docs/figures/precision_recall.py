"""How a list of detections becomes a curve and an average precision, by the project's metric."""

from __future__ import annotations

import numpy as np

from docs.figures.drawing import Axes, Figure
from duet.utils.evaluation.coco.precision import RECALL_GRID, interpolated_precision

WORDS = {
    "en": ("Six detections of four objects: their precision, recall and average precision",
           "score", "P", "R", "precision", "recall"),
    "zh": ("四个物体的六个检测结果：精确率、召回率与平均精确率",
           "得分", "P", "R", "精确率", "召回率"),
}  # fmt: skip
# The example of docs/blocks/map.py at IoU 0.5.
SCORES = (0.90, 0.80, 0.75, 0.70, 0.60, 0.50)
HITS = (True, True, False, True, False, False)
NUM_OBJECTS = 4
ROW, TOP, HEIGHT = 28, 56, 336
COLUMNS = (46, 86, 134, 182)  # right edges


def draw(language: str) -> Figure:
    title, score, p, r, precision_word, recall_word = WORDS[language]
    correct, hits = np.cumsum(HITS), np.array([HITS])
    precision, recall = correct / np.arange(1, len(HITS) + 1), correct / NUM_OBJECTS
    figure = Figure(HEIGHT, title, language)
    for x, label in zip((COLUMNS[0], *COLUMNS[2:]), (score, p, r), strict=True):
        figure.text(x, 30, label, "end bold")
    for row, is_hit in enumerate(HITS):
        y = TOP + ROW * row
        figure.rectangle(4, y - 18, 184, 24, "t-green" if is_hit else "t-red", 4)
        kind, numbers = "TP" if is_hit else "FP", (SCORES[row], precision[row], recall[row])
        written = [f"{value:.2f}" for value in numbers]
        for x, cell in zip(COLUMNS, (written[0], kind, *written[1:]), strict=True):
            figure.text(x, y, cell, "end")
    axes = Axes(figure, (236, 44, 232, 232), (0, 1), (0, 1))
    figure.text(200, 26, precision_word, "bold")
    figure.text(468, 318, recall_word, "end bold")
    # At each recall of COCO's grid, the best precision there or beyond.
    best = interpolated_precision(hits, np.ones_like(hits), NUM_OBJECTS)[0]
    corners = [axes.at(x, y) for x, y in zip(RECALL_GRID, best, strict=True)]
    outline = "L".join(f"{x:.1f} {y:.1f}" for x, y in [axes.at(0, 0), *corners, axes.at(1, 0)])
    figure.add("path", d=f"M{outline}Z", class_="t-blue")
    axes.frame((0, 0.5, 1), (0, 0.5, 1))
    axes.curve(recall, precision, "s-orange")
    axes.curve(RECALL_GRID, best, "s-blue wide")
    for x, y, is_hit in zip(recall, precision, HITS, strict=True):
        figure.dot(*axes.at(x, y), 4.5, "f-green" if is_hit else "f-red")
    figure.text(*axes.at(0.3, 0.24), f"AP = {best.mean():.3f}", "middle bold", size=18)
    return figure
