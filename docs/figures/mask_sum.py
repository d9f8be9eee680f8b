"""How a mask is made: four prototypes, weighted, summed, cut at the box; as in blocks/masks.py."""

import numpy as np

from docs.figures.drawing import Figure
from docs.figures.pictures import block

WORDS = {
    "en": ("prototypes", "sum", "mask"),
    "zh": ("原型", "加权和", "掩码"),
}
HEIGHT, WIDTH, TIMES = 12, 28, 4  # cells, and units of a cell
HUES = ("blue", "orange")
STRONGEST = 4.0  # value that is white, its negative is black


def draw_mask_sum(language: str) -> Figure:
    first, second, third = WORDS[language]
    figure = Figure(330, language)
    made = block("masks")
    maps = made["prototypes"]
    across, high = WIDTH * TIMES, HEIGHT * TIMES
    figure.text(4, 18, first, "bold")
    for place, one in enumerate(maps):
        _map(figure, one, 4 + place * 119, 26)
    objects = zip(made["coefficients"], made["boxes"].astype(int), HUES, strict=True)
    for row, (coefficients, box, hue) in enumerate(objects):
        top = 104 + row * 112
        for place, value in enumerate(coefficients):
            words = f"× {value:g}".replace("-", "−")
            style = f"middle bold f-{hue}" if value else "middle f-soft"
            figure.text(60 + place * 119, top, words, style)
        total = np.tensordot(coefficients, maps, 1)
        figure.text(64, top + 44, second, "end f-soft")
        _map(figure, total, 72, top + 14)
        figure.arrow([(72 + across + 10, top + 38), (72 + across + 40, top + 38)], "stroke", hue)
        shown = np.zeros_like(total)
        left, up, right, down = box
        inside = slice(up, down), slice(left, right)
        shown[inside] = total[inside] > 0
        x = 72 + across + 52
        _map(figure, shown * 2 * STRONGEST - STRONGEST, x, top + 14)
        figure.box(box, f"stroke p-{hue}", TIMES, (x, top + 14))
        figure.text(x + across + 12, top + 44, third, "f-soft")
        y = top + 30 + high
        figure.line([(72, y), (408, y)], "stroke thin s-faint")
    return figure


def _map(figure: Figure, values: np.ndarray, x: float, y: float) -> None:
    grey = ((values / STRONGEST).clip(-1, 1) * 127 + 128).astype(np.uint8)
    pixels = np.repeat(np.repeat(grey, 2 * TIMES, 0), 2 * TIMES, 1)
    figure.image(np.stack([pixels] * 3, 2), x, y, WIDTH * TIMES, HEIGHT * TIMES)
    figure.rectangle(x, y, WIDTH * TIMES, HEIGHT * TIMES, "stroke thin s-line")
