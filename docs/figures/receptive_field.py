"""Stride and receptive field over a photograph: a cell of the last map, and what it sees.

Both are computed from models/yolov5n.yaml, as tutorial 1 does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from docs.figures.drawing import HUES, WIDTH, Figure, text_width
from docs.figures.pictures import photograph
from duet.models.graph import LayerSpec, ModelSpec, read_model_yaml
from duet.utils.files.model_yamls import scale_depth
from duet.utils.project import PROJECT

WORDS = {
    "en": ("A cell over a photograph, and squares around it: what it sees after four layers",
           "640 px, a cell of stride 32, and what it sees", "layer {}: {} px"),
    "zh": ("照片上的一个网格单元，以及经过四层之后它看到的范围",
           "640 像素：步长 32 的一个单元，以及它看到的范围", "第 {} 层：{} 像素"),
}  # fmt: skip
SIDE, STRIDE = 640, 32
SHOWN = (4, 6, 8, 9)  # layers
CELL = 7, 4  # column and row, from 0: on the face
TOP, LABEL = 32, 21


def draw(language: str) -> Figure:
    title, words, label = WORDS[language]
    figure = Figure(TOP + WIDTH, title, language)
    figure.text(0, 22, words, "bold")
    figure.image(photograph("astronaut.jpg").decode(), 0, TOP, WIDTH, WIDTH)
    known = list(fields(read_model_yaml(PROJECT / "models" / "yolov5n.yaml")))
    centre = [(place + 0.5) * STRIDE for place in CELL]
    scale = WIDTH / SIDE
    _square(figure, centre, STRIDE, "f-blue strong", scale)
    for layer, hue in reversed(list(zip(SHOWN, HUES, strict=False))):
        field = known[layer][1]
        for style in ("stroke halo", f"stroke p-{hue}"):
            box = _square(figure, centre, field, style, scale)
        text = label.format(layer, field)
        x, y = box[0], TOP + box[3]
        figure.rectangle(x, y - LABEL, text_width(text) + 8, LABEL, "dark")
        figure.text(x + 4, y - 5, text, "light-text bold")
    return figure


def _square(
    figure: Figure, centre: Sequence[float], side: float, style: str, scale: float
) -> list[float]:
    """Draw a square of the image's pixels, as much of it as the image has; return its box."""
    low, high = ([min(max(value + edge, 1), SIDE - 1) * scale for value in centre]
                 for edge in (-side / 2, side / 2))  # fmt: skip
    figure.box([*low, *high], style, at=(0, TOP))
    return [*low, *high]


def fields(spec: ModelSpec) -> Iterator[tuple[int, int]]:
    """Yield stride and receptive field after each layer of the backbone, pixels."""
    field, stride = 1, 1
    for layer in spec.layers[:10]:
        for kernel, step in _windows(layer, scale_depth(layer.number, spec.depth_multiple)):
            field += (kernel - 1) * stride
            stride *= step
        yield stride, field


def _windows(layer: LayerSpec, repeats: int) -> list[tuple[int, int]]:
    """Return kernel and stride of what a layer does one by one."""
    kinds = {"C3": [(3, 1)] * repeats, "SPPF": [(5, 1)] * 3}
    return kinds.get(layer.block) or [(layer.args[1], layer.args[2])]
