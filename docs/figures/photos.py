"""What the public YOLOv5n finds in the photographs of data/images.

`detect.py` has written docs/photos.json.
"""

from __future__ import annotations

from docs.figures.drawing import WIDTH, Figure
from docs.figures.found_shapes import GAP, height_beside, put_found
from docs.figures.pictures import FOUND_IN_PHOTOS, photograph
from duet.utils.files.json_files import read_json

WORDS = {
    "en": (
        "Photographs with the boxes that the public YOLOv5n found: cat, persons, cup and table",
    ),
    "zh": ("公开的 YOLOv5n 在照片上检测出的框：猫、人、杯子和桌子",),
}
ROWS = (("cat.jpg", "astronaut.jpg"), ("photographer.jpg", "cup.jpg"))


def draw(language: str) -> Figure:
    (title,) = WORDS[language]
    found = read_json(FOUND_IN_PHOTOS)["images"]
    names = sorted({one["name"] for rows in found.values() for one in rows})
    pictures = {name: photograph(name).decode() for row in ROWS for name in row}
    heights = [height_beside([pictures[name] for name in row], WIDTH - GAP) for row in ROWS]
    figure = Figure(sum(heights) + GAP, title, language)
    y = 0.0
    for row, tall in zip(ROWS, heights, strict=True):
        x = 0.0
        for name in row:
            scale = tall / pictures[name].shape[0]
            put_found(figure, pictures[name], found[name], names, (x, y), scale)
            x += pictures[name].shape[1] * scale + GAP
        y += tall + GAP
    return figure
