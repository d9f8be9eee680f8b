"""What a segmentation of the built-in dataset finds, with masks.

`detect.py` has written docs/masks.json.
"""

from __future__ import annotations

from docs.figures.detect import MASKS, MASKS_CONFIDENCE
from docs.figures.drawing import Figure
from docs.figures.found_shapes import beside

WORDS = {
    "en": ("Shapes that a segmentation model found, each filled with the colour of its class",),
    "zh": ("分割模型检测出的图形，掩码用类别的颜色填充",),
}


def draw(language: str) -> Figure:
    (title,) = WORDS[language]
    return beside(title, language, MASKS, MASKS_CONFIDENCE)
