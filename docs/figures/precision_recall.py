"""How a list of detections becomes a curve and an average precision, by the project's metric."""

import numpy as np

from docs.figures.drawing import Axes, Figure
from docs.figures.pictures import block
from duet.utils.evaluation.coco.precision import RECALL_GRID, interpolated_precision

WORDS = {
    "en": ("score", "P", "R", "precision", "recall"),
    "zh": ("得分", "P", "R", "精确率", "召回率"),
}
ROW, TOP, HEIGHT = 28, 56, 336
COLUMNS = (46, 86, 134, 182)  # right edges


def draw_precision_recall(language: str) -> Figure:
    score, p, r, precision_word, recall_word = WORDS[language]
    matched = block("map")["match"](0.5)
    hits = [iou is not None for _, iou in matched]
    num_objects = sum(map(len, block("map")["objects"]))
    correct = np.cumsum(hits)
    precision, recall = correct / np.arange(1, len(hits) + 1), correct / num_objects
    figure = Figure(HEIGHT, language)
    for x, label in zip((COLUMNS[0], *COLUMNS[2:]), (score, p, r), strict=True):
        figure.text(x, 30, label, "end bold")
    for row, ((score_value, _), is_hit) in enumerate(zip(matched, hits, strict=True)):
        y = TOP + ROW * row
        figure.rectangle(4, y - 18, 184, 24, "t-green" if is_hit else "t-red", 4)
        kind, numbers = "TP" if is_hit else "FP", (score_value, precision[row], recall[row])
        written = [f"{value:.2f}" for value in numbers]
        for x, cell in zip(COLUMNS, (written[0], kind, *written[1:]), strict=True):
            figure.text(x, y, cell, "end")
    axes = Axes(figure, (236, 44, 232, 232), (0, 1), (0, 1))
    figure.text(200, 26, precision_word, "bold")
    figure.text(468, 318, recall_word, "end bold")
    # At each recall of COCO's grid, the best precision there or beyond.
    best = interpolated_precision(np.array([hits]), np.ones((1, len(hits)), bool), num_objects)[0]
    corners = [axes.at(x, y) for x, y in zip(RECALL_GRID, best, strict=True)]
    outline = "L".join(f"{x:.1f} {y:.1f}" for x, y in [axes.at(0, 0), *corners, axes.at(1, 0)])
    figure.add("path", d=f"M{outline}Z", class_="t-blue")
    axes.frame((0, 0.5, 1), (0, 0.5, 1))
    axes.curve(recall, precision, "s-orange")
    axes.curve(RECALL_GRID, best, "s-blue wide")
    for x, y, is_hit in zip(recall, precision, hits, strict=True):
        figure.dot(*axes.at(x, y), 4.5, "f-green" if is_hit else "f-red")
    figure.text(*axes.at(0.3, 0.24), f"AP = {best.mean():.3f}", "middle bold", size=18)
    return figure
