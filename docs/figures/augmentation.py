"""What augmentation makes of photographs with the boxes of docs/photos.json."""

import dataclasses
from functools import cache

import numpy as np

from docs.figures.drawing import WIDTH, Figure
from docs.figures.pictures import PHOTOS, photograph, put
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.data.augment.copy_paste import CopyPaste
from duet.utils.data.augment.geometry import Warp
from duet.utils.data.augment.sample import (
    Augmentation,
    Finish,
    Scene,
    draw_augmentation,
    draw_scene,
    finish,
    mix,
)
from duet.utils.data.image.decoding import LabelledImage, SourceImage
from duet.utils.data.randomness import sample_generator

WORDS = {
    "en": ("four images", "mosaic", "warp", "colours", "flip", "seed", "epoch", "index"),
    "zh": ("四张图像", "马赛克", "几何变换", "颜色扰动", "翻转", "种子", "轮次", "序号"),
}
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


def draw_mosaic(language: str) -> Figure:
    """A training image step by step: four images, a mosaic, a warp, colours and a flip.

    It is photograph INDEX of four, in an epoch of a training with `--img 256`, as
    `utils/data/augment/sample.py` draws it with the strengths of hyp.scratch-low.yaml.
    """
    four, mosaic, warp, colours, flip, seed, epoch, index = WORDS[language]
    drawn, sources, images = steps()
    figure = Figure(TOP + 3 * (PANEL + TOP) - 128, language)
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


KINDS = {
    "en": ("as it is", "mosaic", "copy_paste", "mixup", "degrees, shear", "perspective",
           "hsv_h, _s, _v", "fliplr", "flipud"),
    "zh": ("原图", "mosaic", "copy_paste", "mixup", "degrees、shear", "perspective",
           "hsv_h、_s、_v", "fliplr", "flipud"),
}  # fmt: skip
KIND_SIDE = 320  # pixels of a training image
KIND_PANEL, KIND_GAP, KIND_TOP = 154, 9, 26
CENTRE = (1.1, 0.9)  # of the mosaic
TURN = Warp(angle=12, zoom=0.9, shear_xy=(6, 0), centre_xy=(0.55, 0.48))
TILT = Warp(zoom=0.95, perspective_xy=(0.0009, 0.0009))
RATIO = 0.5  # of mixup
GAINS = (1.06, 0.5, 1.25)
UNCHANGED = (1.0, 1.0, 1.0)


@cache
def images() -> list[LabelledImage]:
    """Return the image of each panel."""
    sources = [photograph(name) for name in PHOTOS]
    four, size = Scene((0, 1, 2, 3), CENTRE, Warp(zoom=0.5)), (KIND_SIDE, KIND_SIDE)
    copied = Scene(*(four.tiles, CENTRE, four.warp), copy_paste=CopyPaste(1.0))
    alone, other = (draw_scene(Scene((0,), CENTRE, Warp()), [one], KIND_SIDE, size)
                    for one in sources[:2])  # fmt: skip
    return [
        alone,
        draw_scene(four, sources, KIND_SIDE, size),
        draw_scene(copied, sources, KIND_SIDE, size),
        mix(alone, other, RATIO),
        draw_scene(Scene((0,), CENTRE, TURN), sources[:1], KIND_SIDE, size),
        draw_scene(Scene((0,), CENTRE, TILT), sources[:1], KIND_SIDE, size),
        finish(Finish(GAINS, False, False), alone),
        finish(Finish(UNCHANGED, False, True), alone),
        finish(Finish(UNCHANGED, True, False), alone),
    ]


def draw_augmented(language: str) -> Figure:
    """Each kind of augmentation; the strengths are larger than those of a recipe, to be seen."""
    labels = KINDS[language]
    figure = Figure(3 * (KIND_TOP + KIND_PANEL), language)
    for place, (image, label) in enumerate(zip(images(), labels, strict=True)):
        x, y = (place % 3) * (KIND_PANEL + KIND_GAP), (place // 3) * (KIND_TOP + KIND_PANEL)
        figure.text(x, y + KIND_TOP - 8, label, "bold")
        put(figure, image, (x, y + KIND_TOP), KIND_PANEL / KIND_SIDE)
    assert 3 * KIND_PANEL + 2 * KIND_GAP == WIDTH
    return figure
