"""What a segmentation of the built-in dataset finds, with masks.

`detect_shapes.py` has written docs/masks.json.
"""

from __future__ import annotations

from docs.figures.detect_shapes import MASKS
from docs.figures.drawing import HUES, Figure, number
from docs.figures.found_shapes import GAP, WIDTH, height_beside, put_found
from docs.figures.pictures import CLASS_NAMES, shapes_file
from duet.utils.files.json_files import read_json

WORDS = {
    "en": ("Shapes that a segmentation model found, each filled with the colour of its class",),
    "zh": ("分割模型检测出的图形，掩码用类别的颜色填充",),
}


def draw(language: str) -> Figure:
    (title,) = WORDS[language]
    images = {int(index): found for index, found in read_json(MASKS)["images"].items()}
    pictures = {index: shapes_file(index).image for index in list(images)[1:]}
    tall = height_beside(list(pictures.values()), WIDTH - GAP * (len(pictures) - 1))
    figure = Figure(tall, title, language)
    x = 0.0
    for index, image in pictures.items():
        scale = tall / image.shape[0]
        put_found(figure, image, images[index], CLASS_NAMES, (x, 0), scale)
        for one in images[index]:
            points = "L".join(f"{number(x + a * scale)} {number(b * scale)}"
                              for a, b in one["outline"])  # fmt: skip
            hue = HUES[CLASS_NAMES.index(one["name"]) % len(HUES)]
            figure.add("path", d=f"M{points}Z", class_=f"f-{hue} strong p-{hue} wide")
        x += image.shape[1] * scale + GAP
    return figure
