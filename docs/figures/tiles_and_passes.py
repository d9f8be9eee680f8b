"""The parts and sizes in which a network sees one image: tiles, and test-time augmentation."""

from __future__ import annotations

import cv2
import numpy as np

from docs.figures.drawing import HUES, Figure
from docs.figures.pictures import wide_photograph
from duet.models.heads.anchor.head import AnchorHead
from duet.utils.geometry.tiling import Tiling

WORDS = {
    "en": ("Tiles of an image with --tile 640, and the three sizes of --augment",
           ": tiles of 640, and the whole", "test-time augmentation", "mirrored"),
    "zh": ("--tile 640 的切片与 --augment 的三种尺寸",
           "：边长 640 的切片，另加整图", "测试时增强", "镜像"),
}  # fmt: skip
FILE = 1080, 1920
TILING = Tiling(640)
SCALE = 464 / FILE[1]
TILES_TOP, PASSES_TOP = 34, 356
PASS_SIDE = 170  # units of an input of scale 1


def draw(language: str) -> Figure:
    title, tiles, augmentation, mirrored = WORDS[language]
    figure = Figure(PASSES_TOP + PASS_SIDE * 9 / 16 + 52, title, language)
    small = wide_photograph("photographer.jpg", 40)
    figure.text(8, 22, f"1920 × 1080{tiles}", "bold")
    figure.image(small, 8, TILES_TOP, FILE[1] * SCALE, FILE[0] * SCALE)
    height, width = TILING.tile_size(FILE)
    for place, (top, left) in enumerate(TILING.corners(FILE)):
        x, y = 8 + left * SCALE, TILES_TOP + top * SCALE
        inset = 3 + 2 * (place % 4)  # neighbours would hide each other's lines
        hue = HUES[place % len(HUES)]
        box = x + inset, y + inset, width * SCALE - 2 * inset, height * SCALE - 2 * inset
        figure.rectangle(*box, "stroke halo")
        figure.rectangle(*box, f"stroke p-{hue}")
        middle = x + width * SCALE / 2, y + height * SCALE / 2 + 6
        figure.text(*middle, str(place + 1), "middle bold on-picture", size=20)
    figure.text(8, PASSES_TOP - 16, augmentation, "bold")
    _draw_passes(figure, small, mirrored)
    return figure


def _draw_passes(figure: Figure, image: np.ndarray, mirrored: str) -> None:
    x = 8.0
    for one in AnchorHead.passes:
        width, height = PASS_SIDE * one.scale, PASS_SIDE * one.scale * 9 / 16
        figure.image(cv2.flip(image, 1) if one.mirrored else image, x, PASSES_TOP, width, height)
        figure.rectangle(x, PASSES_TOP, width, height, "stroke s-blue")
        figure.text(x, PASSES_TOP + height + 20, f"×{one.scale:g}")
        if one.mirrored:
            figure.text(x, PASSES_TOP + height + 40, mirrored, "f-soft")
        x += width + 20
