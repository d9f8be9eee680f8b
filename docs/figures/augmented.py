"""What each kind of augmentation makes of a photograph, with its boxes.

Boxes are those of docs/photos.json. The strengths are larger than those of a recipe, to be seen.
"""

from __future__ import annotations

from functools import cache, partial

import cv2
import numpy as np

from docs.figures.detect_photos import DETECTIONS, PHOTOGRAPHS
from docs.figures.drawing import WIDTH, Figure
from docs.figures.pictures import put
from duet.utils.data.augment.geometry import Warp
from duet.utils.data.augment.sample import Finish, Scene, draw_scene, finish, mix
from duet.utils.data.image.decoding import LabelledImage, Objects, SourceImage
from duet.utils.files.json_files import read_json

WORDS = {
    "en": ("A photograph after each kind of augmentation",
           ("as it is", "mosaic", "warp", "mixup", "hsv_h, hsv_s, hsv_v", "fliplr")),
    "zh": ("一张照片经过各种数据增强之后",
           ("原图", "mosaic", "几何变换", "mixup", "hsv_h、hsv_s、hsv_v", "fliplr")),
}  # fmt: skip
SIDE = 320  # pixels of a training image
PANEL, GAP, TOP = 234, 12, 26
NAMES = ("cup.jpg", "cat.jpg", "astronaut.jpg", "photographer.jpg")
CENTRE = (1.1, 0.9)  # of the mosaic
WARP = Warp(angle=12, zoom=0.9, shear_xy=(6, 0), centre_xy=(0.55, 0.48))
RATIO = 0.5  # of mixup
GAINS = (1.06, 0.5, 1.25)
UNCHANGED = (1.0, 1.0, 1.0)


def _source(name: str) -> SourceImage:
    found = read_json(DETECTIONS)["images"]
    classes = sorted({one["name"] for rows in found.values() for one in rows})
    pixels = cv2.imread(str(PHOTOGRAPHS / name))
    index = np.array([classes.index(one["name"]) for one in found[name]])
    boxes = np.array([one["box_xyxy"] for one in found[name]], float)
    size = pixels.shape[:2]
    return SourceImage(size, Objects(index, boxes, None), size, partial(np.copy, pixels))


@cache
def images() -> list[LabelledImage]:
    """Return the image of each panel."""
    sources = [_source(name) for name in NAMES]
    size = SIDE, SIDE
    alone = [draw_scene(Scene((0,), CENTRE, Warp()), [one], SIDE, size) for one in sources[:2]]
    mosaic = draw_scene(Scene((0, 1, 2, 3), CENTRE, Warp(zoom=0.5)), sources, SIDE, size)
    warped = draw_scene(Scene((0,), CENTRE, WARP), sources[:1], SIDE, size)
    coloured = finish(Finish(GAINS, False, False), alone[0])
    flipped = finish(Finish(UNCHANGED, False, True), alone[0])
    return [alone[0], mosaic, warped, mix(*alone, RATIO), coloured, flipped]


def draw(language: str) -> Figure:
    title, labels = WORDS[language]
    figure = Figure(3 * (TOP + PANEL), title, language)
    for place, (image, label) in enumerate(zip(images(), labels, strict=True)):
        x, y = (place % 2) * (PANEL + GAP), (place // 2) * (TOP + PANEL)
        figure.text(x, y + TOP - 8, label, "bold")
        put(figure, image, (x, y + TOP), PANEL / SIDE)
    assert 2 * PANEL + GAP == WIDTH
    return figure
