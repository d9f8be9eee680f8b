"""The cells that must predict an object without anchors, and the distribution of one edge.

The cells are those of `models/heads/distribution/assign.py`.
"""

import numpy as np

from docs.figures.drawing import Axes, Figure
from duet.models.heads.distribution.assign import find_candidates
from duet.models.heads.distribution.rows import BINS
from duet.utils.data.loading.batch import Targets

WORDS = {
    "en": ("stride 16: centres in the object", "left edge of one cell", "cells to the edge"),
    "zh": ("步长 16：中心在物体内", "一个单元的左边缘", "到边缘的单元数"),
}
IMAGE, STRIDE = 160, 16  # pixels
BOX_XYWH = 83.0, 74.0, 90.0, 62.0
CELL, LEFT, TOP = 20, 12, 40  # units
AT = 6, 4  # column and row of the cell whose edge is drawn
LOGITS = {2: 4.2, 3: 7.0, 4: 6.2, 5: 3.0}


def draw_edge_distribution(language: str) -> Figure:
    grid_title, edge_title, unit = WORDS[language]
    figure = Figure(TOP + IMAGE // STRIDE * CELL + 24, language)
    figure.text(LEFT, 24, grid_title, "bold")
    _draw_grid(figure)
    figure.text(272, 24, edge_title, "bold")
    _draw_shares(figure, unit)
    return figure


def _draw_grid(figure: Figure) -> None:
    side, scale = IMAGE // STRIDE, CELL / STRIDE
    box = np.array([BOX_XYWH], np.float32) / IMAGE
    targets = Targets(np.zeros(1, np.int64), np.zeros(1, np.int64), box)
    found = find_candidates(targets, [(side, side)], (STRIDE,), "float32")
    _, _, width, first, step, _ = found.rectangles[0].tolist()
    for number in range(found.num_pairs):
        row, column = divmod(first + number // width * step + number, side)
        figure.rectangle(LEFT + column * CELL, TOP + row * CELL, CELL, CELL, "t-blue strong")
    for line in range(side + 1):
        along, end = line * CELL, side * CELL
        figure.line([(LEFT + along, TOP), (LEFT + along, TOP + end)], "stroke thin s-faint")
        figure.line([(LEFT, TOP + along), (LEFT + end, TOP + along)], "stroke thin s-faint")
    x, y, width, height = (value * scale for value in BOX_XYWH)
    left = LEFT + x - width / 2
    figure.rectangle(left, TOP + y - height / 2, width, height, "stroke s-orange")
    centre = LEFT + (AT[0] + 0.5) * CELL, TOP + (AT[1] + 0.5) * CELL
    figure.arrow([centre, (left, centre[1])], "stroke", "ink")
    figure.dot(*centre, 4, "f-ink")


def _draw_shares(figure: Figure, unit: str) -> None:
    logits = np.array([LOGITS.get(cells, 0.0) for cells in range(BINS)])
    shares = np.exp(logits) / np.exp(logits).sum()
    axes = Axes(figure, (272, TOP, 196, 150), (-0.5, BINS - 0.5), (0, 0.7))
    axes.frame(range(0, BINS, 5))
    for cells, share in enumerate(shares.tolist()):
        left, top = axes.at(cells - 0.35, share)
        right, bottom = axes.at(cells + 0.35, 0)
        figure.rectangle(left, top, right - left, bottom - top, "f-blue")
    mean = float((shares * np.arange(BINS)).sum())
    axes.curve([mean, mean], [0, 0.66], "s-orange dashed")
    x, y = axes.at(mean, 0.62)
    figure.text(x + 6, y, f"{mean:.2f}", "bold f-orange")
    figure.text(468, TOP + 188, unit, "end f-soft")
