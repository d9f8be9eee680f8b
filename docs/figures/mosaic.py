"""A training image step by step: four images, a mosaic, a warp, colours and a flip.

It is photograph INDEX of four, in an epoch of a training with `--img 256`, as
`utils/data/augment/sample.py` draws it with the strengths of hyp.scratch-low.yaml.
"""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np

from docs.figures.drawing import Figure
from docs.figures.pictures import PHOTOS, photograph, put
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.data.augment.geometry import Warp
from duet.utils.data.augment.sample import (
    Augmentation,
    Finish,
    draw_augmentation,
    draw_scene,
    finish,
)
from duet.utils.data.image.decoding import LabelledImage, SourceImage
from duet.utils.data.randomness import sample_generator

WORDS = {
    "en": ("From four images to one training image, step by step",
           "four images", "mosaic", "warp", "colours", "flip", "seed", "epoch", "index"),
    "zh": ("四张图像逐步变成一张训练图像",
           "四张图像", "马赛克", "几何变换", "颜色扰动", "翻转", "种子", "轮次", "序号"),
}  # fmt: skip
SEED, EPOCH, INDEX = 0, 11, 2  # of the draws that take each photograph once
SIDE = 256  # of the training image, pixels
PANEL, GAP, TOP = 226, 12, 34


@cache
def steps() -> tuple[Augmentation, list[SourceImage], list[LabelledImage]]:
    """Return the draws, their images, and what is made of them step by step."""
    strengths = read_hyperparameters(DEFAULT_HYPERPARAMETERS).augmentation()
    generator = sample_generator(SEED, EPOCH, INDEX)
    drawn = draw_augmentation(strengths, generator, INDEX, len(PHOTOS))
    sources = [photograph(PHOTOS[index]) for index in drawn.tiles]
    whole = 2 * SIDE, 2 * SIDE
    unwarped = dataclasses.replace(drawn, warp=Warp())
    mosaic = draw_scene(unwarped, sources, SIDE, whole)
    warped = draw_scene(drawn, sources, SIDE, (SIDE, SIDE))
    coloured = finish(Finish(drawn.hsv_gains, False, False), warped)
    return drawn, sources, [mosaic, warped, coloured, finish(drawn, warped)]


def draw(language: str) -> Figure:
    title, four, mosaic, warp, colours, flip, seed, epoch, index = WORDS[language]
    drawn, sources, images = steps()
    figure = Figure(TOP + 3 * (PANEL + TOP) - 128, title, language)
    figure.text(8, 22, f"1 {four}", "bold")
    figure.text(472, 22, f"{seed} {SEED}, {epoch} {EPOCH}, {index} {INDEX}", "end f-soft")
    for place, one in enumerate(sources):
        _thumbnail(figure, one, 8 + place * 118, TOP)
    labels = (mosaic, warp, colours, flip)
    details = (
        "({:.2f}, {:.2f})".format(*drawn.mosaic_centre_xy),
        f"×{drawn.warp.zoom:.2f}",
        "×({:.2f}, {:.2f}, {:.2f})".format(*drawn.hsv_gains),
        "↔",
    )
    for place, (image, label, detail) in enumerate(zip(images, labels, details, strict=True)):
        x = 8 + (place % 2) * (PANEL + GAP)
        y = TOP + 128 + (place // 2) * (PANEL + TOP) + 10
        figure.text(x, y - 8, f"{place + 2} {label}", "bold")
        figure.text(x + PANEL, y - 8, detail, "end f-soft")
        put(figure, image, (x, y), PANEL / image.size[0])
    _mark_centre(figure, drawn)
    return figure


def _thumbnail(figure: Figure, image: SourceImage, x: float, y: float) -> None:
    height, width = image.size
    scale = 110 / max(height, width)
    item = LabelledImage(image.decode(), *image.objects)
    put(figure, item, (x, y), scale)


def _mark_centre(figure: Figure, drawn: Augmentation) -> None:
    """Mark the point where the four images meet."""
    x, y = np.array(drawn.mosaic_centre_xy) * PANEL / 2 + [8, TOP + 138]
    figure.dot(x, y, 6, "stroke halo")
    figure.dot(x, y, 5, "light")
