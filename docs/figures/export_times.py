"""Milliseconds per image of the formats, from the table of export.md."""

from __future__ import annotations

from docs.figures.bars import bars, table_below
from docs.figures.drawing import Figure

WORDS = {
    "en": ("Milliseconds per image by format: INT8 is fastest", "ms per image", "1 thread",
           "2 threads", "PyTorch"),
    "zh": ("各格式每张图像的毫秒数：INT8 最快", "每张图像的毫秒数", "1 个线程", "2 个线程",
           "PyTorch"),
}  # fmt: skip


def draw(language: str) -> Figure:
    title, unit, one, two, model = WORDS[language]
    rows = [
        (f"{model if 'PyTorch' in name else name} {precision}", (float(first), float(second)))
        for name, precision, *_, first, second in table_below("export.md", "Measured")
    ]
    return bars(title, language, unit, (one, two), rows)
