"""Milliseconds per image of all sizes and formats, from the table of export.md."""

from __future__ import annotations

from docs.figures.bars import bars, table_below
from docs.figures.drawing import Figure

WORDS = {
    "en": ("Milliseconds per image: INT8 is fastest, most of all in large models", "ms per image"),
    "zh": ("每张图像的毫秒数：INT8 最快，模型越大差距越大", "每张图像的毫秒数"),
}
FORMATS = "PyTorch", "ONNX", "ONNX, INT8"


def draw(language: str) -> Figure:
    title, unit = WORDS[language]
    table = table_below("export.md", "All sizes")
    rows = [(name, [float(value) for value in values]) for name, *values in table]
    return bars(title, language, unit, FORMATS, rows)
