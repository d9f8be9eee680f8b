"""Stride and receptive field over a photograph: a cell of the last map, and what it sees.

Tutorial 1 computes what it sees: docs/blocks/architecture-layers.py.
"""

from collections.abc import Sequence

from docs.figures.drawing import HUES, PLATE, WIDTH, Figure
from docs.figures.pictures import block, photograph

WORDS = {
    "en": ("640 px, a cell of stride 32, and what it sees", "layer {}: {} px"),
    "zh": ("640 像素：步长 32 的一个单元，以及它看到的范围", "第 {} 层：{} 像素"),
}
SIDE, STRIDE = 640, 32
SHOWN = (4, 6, 8, 9)  # layers
CELL = 7, 4  # column and row, from 0: on the face
TOP = 32


def draw_receptive_field(language: str) -> Figure:
    words, label = WORDS[language]
    figure = Figure(TOP + WIDTH, language)
    figure.text(0, 22, words, "bold")
    figure.image(photograph("astronaut.jpg").decode(), 0, TOP, WIDTH, WIDTH)
    fields = block("architecture-layers")["fields"]
    centre = [(place + 0.5) * STRIDE for place in CELL]
    scale = WIDTH / SIDE
    _square(figure, centre, STRIDE, "f-blue strong", scale)
    for layer, hue in reversed(list(zip(SHOWN, HUES, strict=False))):
        for style in ("stroke halo", f"stroke p-{hue}"):
            box = _square(figure, centre, fields[layer], style, scale)
        figure.plate(box[0], TOP + box[3] - PLATE, label.format(layer, fields[layer]))
    return figure


def _square(
    figure: Figure, centre: Sequence[float], side: float, style: str, scale: float
) -> list[float]:
    """Draw a square of the image's pixels, as much of it as the image has; return its box."""
    low, high = ([min(max(value + edge, 1), SIDE - 1) * scale for value in centre]
                 for edge in (-side / 2, side / 2))  # fmt: skip
    figure.box([*low, *high], style, at=(0, TOP))
    return [*low, *high]
