"""The rows of an anchor in a head of four classes, and in one of two that takes over what fits.

Their weights, dark for the largest, are those of tutorial 10: docs/blocks/weights-transfer.py.
"""

from __future__ import annotations

import numpy as np

from docs.figures.blocks import block
from docs.figures.drawing import Figure

WORDS = {
    "en": ("The head's rows of one anchor as matrices of weights: which rows a new head takes over",
           "weights, (9, 64)", "your head, (7, 64)", "seed"),
    "zh": ("检测头中一个锚框的各行组成的权重矩阵，以及新检测头沿用哪些行",
           "权重，(9, 64)", "新检测头，(7, 64)", "种子"),
}  # fmt: skip
OUTPUTS = ("x", "y", "width", "height", "objectness")
ROW, TOP, WIDE, LEFT, RIGHT = 22, 34, 118, 88, 270
ANCHOR = 1


def draw(language: str) -> Figure:
    title, given, own, seed = WORDS[language]
    made = block("weights-transfer")
    old, new = (*OUTPUTS, *made["OLD"]), (*OUTPUTS, *made["NEW"])
    figure = Figure(TOP + ROW * len(old) + 4, title, language)
    for x, label, names, weights in ((LEFT, given, old, made["old_head"]),
                                     (RIGHT, own, new, made["head"])):  # fmt: skip
        rows = weights.reshape(3, len(names), -1)[ANCHOR]
        grey = (abs(rows) / abs(rows).max() * -180 + 235).astype(np.uint8)
        pixels = np.repeat(np.repeat(grey, 2 * ROW, 0), 4, 1)
        figure.text(x, TOP - 12, label, "bold")
        figure.image(np.stack([pixels] * 3, 2), x, TOP, WIDE, ROW * len(names))
        for place in range(len(names) + 1):
            y = TOP + place * ROW
            figure.line([(x, y), (x + WIDE, y)], "stroke two s-line")
    for place, name in enumerate(old):
        figure.text(LEFT - 6, _middle(place) + 5, name, "end" if name in new else "end f-soft")
    for place, name in enumerate(new):
        hue = "blue" if place < 4 else "orange" if place == 4 else "green"
        y = _middle(place)
        label = name if name in old else f"{name} ({seed})"
        figure.text(RIGHT + WIDE + 6, y + 5, label, f"f-{hue}" if name in old else "f-soft")
        if name in old:
            figure.arrow([(LEFT + WIDE + 4, _middle(old.index(name))), (RIGHT - 4, y)], hue=hue)
    return figure


def _middle(place: int) -> float:
    return TOP + (place + 0.5) * ROW
