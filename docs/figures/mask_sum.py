"""How a mask is made: four prototypes, weighted, summed, cut at the box; as in blocks/masks.py."""

from __future__ import annotations

import numpy as np

from docs.figures.drawing import Figure

WORDS = {
    "en": ("Four prototypes times their coefficients add up to a map; where it is positive "
           "in the box is the mask", "prototypes", "sum", "mask"),
    "zh": ("四个原型乘以各自的系数相加成一张图，框内大于 0 的部分就是掩码",
           "原型", "加权和", "掩码"),
}  # fmt: skip
HEIGHT, WIDTH, TIMES = 12, 28, 4  # cells, and units of a cell
COEFFICIENTS = ((0, -1, 0, 1), (0.5, 1, 1, 0))
BOXES = ((2, 0, 15, 12), (13, 0, 26, 12))
HUES = ("blue", "orange")
STRONGEST = 4.0  # value that is white, its negative is black


def prototypes() -> np.ndarray:
    """Return the maps (4, h, w) of the page."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    away = np.hypot(rows - 5.5, columns - 13.5)
    flat = np.ones((HEIGHT, WIDTH))
    return np.stack([flat, (columns - 13.5) / 4, (rows - 5.5) / 2, 5 - away])


def draw(language: str) -> Figure:
    title, first, second, third = WORDS[language]
    figure = Figure(330, title, language)
    maps = prototypes()
    across, high = WIDTH * TIMES, HEIGHT * TIMES
    figure.text(4, 18, first, "bold")
    for place, one in enumerate(maps):
        _map(figure, one, 4 + place * 119, 26)
    for row, (coefficients, box, hue) in enumerate(zip(COEFFICIENTS, BOXES, HUES, strict=True)):
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
