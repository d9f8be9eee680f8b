"""The rows of an anchor in a head of four classes, and in one of two that takes over what fits.

Their weights, dark for the largest, are those of tutorial 10: docs/blocks/weights-transfer.py.
"""

import numpy as np

from docs.figures.drawing import Figure
from docs.figures.pictures import block

WORDS = {
    "en": ("weights, (9, 64)", "your head, (7, 64)", "seed"),
    "zh": ("权重，(9, 64)", "新检测头，(7, 64)", "种子"),
}
OUTPUTS = ("x", "y", "width", "height", "objectness")
ROW, TOP, WIDE, LEFT, RIGHT = 22, 34, 118, 88, 270
ANCHOR = 1


def draw_head_rows(language: str) -> Figure:
    given, own, seed = WORDS[language]
    made = block("weights-transfer")
    old, new = (*OUTPUTS, *made["OLD"]), (*OUTPUTS, *made["NEW"])
    figure = Figure(TOP + ROW * len(old) + 4, language)
    heads = (LEFT, given, old, made["old_head"]), (RIGHT, own, new, made["head"])
    for x, label, names, weights in heads:
        rows = weights.reshape(3, len(names), -1)[ANCHOR]
        grey = (abs(rows) / abs(rows).max() * -180 + 235).astype(np.uint8)
        pixels = np.repeat(np.repeat(grey, 2 * ROW, 0), 4, 1)
        figure.text(x, TOP - 12, label, "bold")
        figure.image(np.stack([pixels] * 3, 2), x, TOP, WIDE, ROW * len(names))
        for y in range(TOP, TOP + ROW * len(names) + 1, ROW):
            figure.line([(x, y), (x + WIDE, y)], "stroke two s-line")
    middles = [TOP + (place + 0.5) * ROW for place in range(len(old))]
    for name, y in zip(old, middles, strict=True):
        figure.text(LEFT - 6, y + 5, name, "end" if name in new else "end f-soft")
    for place, (name, y) in enumerate(zip(new, middles, strict=False)):
        if name not in old:
            figure.text(RIGHT + WIDE + 6, y + 5, f"{name} ({seed})", "f-soft")
            continue
        hue = "blue" if place < 4 else "orange" if place == 4 else "green"
        figure.text(RIGHT + WIDE + 6, y + 5, name, f"f-{hue}")
        figure.arrow([(LEFT + WIDE + 4, middles[old.index(name)]), (RIGHT - 4, y)], hue=hue)
    return figure
