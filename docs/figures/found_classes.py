"""What a classifier of the built-in dataset says of ten images: `detect.py` has asked it."""

from __future__ import annotations

from docs.figures.detect import SORTED
from docs.figures.drawing import WIDTH, Figure
from docs.figures.pictures import class_image
from duet.utils.data.shapes.dataset import CLASSES
from duet.utils.files.json_files import read_json

WORDS = {
    "en": ("Ten images, each with the class that a classifier gave it and its probability",),
    "zh": ("十张图像，以及分类器给出的类别与概率",),
}
COLUMNS, GAP, BELOW = 5, 8, 44
PANEL = (WIDTH - (COLUMNS - 1) * GAP) / COLUMNS


def draw(language: str) -> Figure:
    (title,) = WORDS[language]
    found = read_json(SORTED)["images"]
    figure = Figure(2 * (PANEL + BELOW) + GAP, title, language)
    for place, (index, (best,)) in enumerate(found.items()):
        x, y = place % COLUMNS * (PANEL + GAP), place // COLUMNS * (PANEL + BELOW + GAP)
        figure.image(class_image(int(index)), x, y, PANEL, PANEL)
        right = best["name"] == list(CLASSES)[int(index) % len(CLASSES)]
        style = "" if right else " f-red"
        colour, shape = best["name"].split()
        figure.text(x, y + PANEL + 18, shape, f"bold{style}")
        figure.text(x, y + PANEL + 37, f"{colour} {best['score']:.2f}", style)
    return figure
