"""Several views of an image: tiles, test-time augmentation, and what each finds."""

import cv2
import numpy as np

from docs.figures.drawing import HUES, WIDTH, Figure
from docs.figures.pictures import FOUND_IN_PHOTOS, SHEET_SIDE, on_picture, sheet, wide_photograph
from duet.models.heads.anchor.head import AnchorHead
from duet.utils.files.json_files import read_json
from duet.utils.geometry.tiling import Tiling

WORDS = {
    "en": (": tiles of 640, and the whole", "test-time augmentation", "mirrored"),
    "zh": ("：边长 640 的切片，另加整图", "测试时增强", "镜像"),
}
FILE = 1080, 1920
TILING = Tiling(640)
SCALE = 464 / FILE[1]
TILES_TOP, PASSES_TOP = 34, 356
PASS_SIDE = 170  # units of an input of scale 1


def draw_tiles_and_passes(language: str) -> Figure:
    """The parts and sizes in which a network sees one image: tiles, and test-time augmentation."""
    tiles, augmentation, mirrored = WORDS[language]
    figure = Figure(PASSES_TOP + PASS_SIDE * 9 / 16 + 52, language)
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


COUNTS = {
    "en": "boxes: {} persons, {} cats, {} cups and tables, {} wrong",
    "zh": "框：{} 个人、{} 只猫、{} 个杯子和桌子、{} 个错误",
}
WAYS = ("--img 640", "--img 640 --augment", "--img 640 --tile 640")
KINDS = (("person",), ("cat",), ("cup", "dining table"))
CROWD_TOP, CROWD_GAP = 50, 12


def draw_crowd(language: str) -> Figure:
    """What each finds among many small objects: a sheet of photographs, 72 in all."""
    counts = COUNTS[language]
    rows, columns = sheet().shape[0] // SHEET_SIDE, sheet().shape[1] // SHEET_SIDE
    side = WIDTH / columns
    tall = rows * side
    figure = Figure(len(WAYS) * (CROWD_TOP + tall + CROWD_GAP) - CROWD_GAP, language)
    ways = zip(WAYS, read_json(FOUND_IN_PHOTOS)["sheet"], strict=True)
    for place, (way, found) in enumerate(ways):
        top = CROWD_TOP + place * (CROWD_TOP + tall + CROWD_GAP)
        kinds = [next((n for n, names in enumerate(KINDS) if one["name"] in names), len(KINDS))
                 for one in found]  # fmt: skip
        figure.text(0, top - 30, way, "code bold")
        numbers = np.bincount(kinds, minlength=len(KINDS) + 1).tolist()
        figure.text(0, top - 9, counts.format(*numbers), "f-soft")
        for row, column in np.ndindex(rows, columns):
            y, x = row * SHEET_SIDE, column * SHEET_SIDE
            pixels = sheet()[y : y + SHEET_SIDE, x : x + SHEET_SIDE]
            figure.image(pixels, column * side, top + row * side, side, side)
        for kind, one in zip(kinds, found, strict=True):
            on_picture(figure, one["box_xyxy"], kind, (0, top), side / SHEET_SIDE)
    return figure
