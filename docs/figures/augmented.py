"""What each kind of augmentation makes of a photograph, with its boxes.

Boxes are those of docs/photos.json. The strengths are larger than those of a recipe, to be seen.
"""

from __future__ import annotations

from functools import cache

from docs.figures.drawing import WIDTH, Figure
from docs.figures.pictures import PHOTOS, photograph, put
from duet.utils.data.augment.copy_paste import CopyPaste
from duet.utils.data.augment.geometry import Warp
from duet.utils.data.augment.sample import Finish, Scene, draw_scene, finish, mix
from duet.utils.data.image.decoding import LabelledImage

WORDS = {
    "en": ("A photograph after each kind of augmentation",
           ("as it is", "mosaic", "copy_paste", "mixup", "degrees, shear", "perspective",
            "hsv_h, _s, _v", "fliplr", "flipud")),
    "zh": ("一张照片经过各种数据增强之后",
           ("原图", "mosaic", "copy_paste", "mixup", "degrees、shear", "perspective",
            "hsv_h、_s、_v", "fliplr", "flipud")),
}  # fmt: skip
SIDE = 320  # pixels of a training image
PANEL, GAP, TOP = 154, 9, 26
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
    four, size = Scene((0, 1, 2, 3), CENTRE, Warp(zoom=0.5)), (SIDE, SIDE)
    copied = Scene(*(four.tiles, CENTRE, four.warp), copy_paste=CopyPaste(1.0))
    alone, other = (draw_scene(Scene((0,), CENTRE, Warp()), [one], SIDE, size)
                    for one in sources[:2])  # fmt: skip
    return [
        alone,
        draw_scene(four, sources, SIDE, size),
        draw_scene(copied, sources, SIDE, size),
        mix(alone, other, RATIO),
        draw_scene(Scene((0,), CENTRE, TURN), sources[:1], SIDE, size),
        draw_scene(Scene((0,), CENTRE, TILT), sources[:1], SIDE, size),
        finish(Finish(GAINS, False, False), alone),
        finish(Finish(UNCHANGED, False, True), alone),
        finish(Finish(UNCHANGED, True, False), alone),
    ]


def draw(language: str) -> Figure:
    title, labels = WORDS[language]
    figure = Figure(3 * (TOP + PANEL), title, language)
    for place, (image, label) in enumerate(zip(images(), labels, strict=True)):
        x, y = (place % 3) * (PANEL + GAP), (place // 3) * (TOP + PANEL)
        figure.text(x, y + TOP - 8, label, "bold")
        put(figure, image, (x, y + TOP), PANEL / SIDE)
    assert 3 * PANEL + 2 * GAP == WIDTH
    return figure
