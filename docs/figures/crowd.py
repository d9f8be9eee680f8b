"""Many small objects, as one view, test-time augmentation and tiles find them: docs/photos.json.

`detect.py` has detected in the sheet, which is 72 times a photograph of data/images.
"""

from __future__ import annotations

import numpy as np

from docs.figures.drawing import WIDTH, Figure
from docs.figures.pictures import FOUND_IN_PHOTOS, SHEET_SIDE, on_picture, sheet
from duet.utils.files.json_files import read_json

WORDS = {
    "en": ("72 small photographs: what one view, three views and tiles find in them",
           "boxes: {} persons, {} cats, {} cups and tables, {} wrong"),
    "zh": ("72 张小照片：一个视图、三个视图与切片各检测到什么",
           "框：{} 个人、{} 只猫、{} 个杯子和桌子、{} 个错误"),
}  # fmt: skip
WAYS = ("--img 640", "--img 640 --augment", "--img 640 --tile 640")
KINDS = (("person",), ("cat",), ("cup", "dining table"))
TOP, GAP = 50, 12


def draw(language: str) -> Figure:
    title, counts = WORDS[language]
    rows, columns = sheet().shape[0] // SHEET_SIDE, sheet().shape[1] // SHEET_SIDE
    side = WIDTH / columns
    tall = rows * side
    figure = Figure(len(WAYS) * (TOP + tall + GAP) - GAP, title, language)
    ways = zip(WAYS, read_json(FOUND_IN_PHOTOS)["sheet"], strict=True)
    for place, (way, found) in enumerate(ways):
        top = TOP + place * (TOP + tall + GAP)
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
