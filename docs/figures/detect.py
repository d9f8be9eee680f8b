"""Detect for figures, plots and the page of an audit: python -m docs.figures.detect WEIGHTS

With WEIGHTS of `make demo` it writes docs/detections.json, of images of the built-in dataset. Those
of a segmentation of shapes-seg give docs/masks.json, those of a classifier of shapes-cls
docs/classes.json, and the public YOLOv5n docs/photos.json, of the photographs of data/images and of
a sheet of them.
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import json
from typing import Any

import duet
from docs.figures.pictures import (
    CLASS_IMAGES,
    CLASS_NAMES,
    FOUND_IN_PHOTOS,
    PHOTOGRAPHS,
    class_image,
    shapes_file,
    sheet,
)
from duet.utils.cli.flags import new_parser
from duet.utils.data.shapes.dataset import CLASSES
from duet.utils.detect.results.result import MaskResult, Result
from duet.utils.errors import UserError, brief
from duet.utils.files.atomic import atomic_text_file
from duet.utils.processes.command import run_command
from duet.utils.project import PROJECT

DOCS = PROJECT / "docs"
DETECTIONS, MASKS, SORTED = (DOCS / f"{name}.json" for name in ("detections", "masks", "classes"))
IMAGES = range(400, 500)  # the validation split
SHOWN = IMAGES[1:3]  # in figures
CONFIDENCE, MASKS_CONFIDENCE, LOWEST = 0.5, 0.35, 0.1
PHOTO_SIZE = 320
SHEET_CONFIDENCE = 0.4
SHEET_WAYS: tuple[dict[str, Any], ...] = ({}, {"augment": True}, {"tile": 640})


def rows_of(result: Result) -> list[dict[str, Any]]:
    """Return what a figure draws of an image's detections."""
    return [
        {
            "name": one.name,
            "score": round(one.score, 3),
            "box_xyxy": [round(value, 1) for value in one.box_xyxy],
        }
        for one in result
    ]


def boxes_and_masks(detector: Any, index: int, confidence: float) -> list[dict[str, Any]]:
    """Return the rows of an image of the built-in dataset, with outlines if there are masks."""
    (result,) = detector(shapes_file(index).image[..., ::-1].copy(), conf=confidence)
    rows = rows_of(result)
    for row, outline in zip(rows, getattr(result, "outlines", ()), strict=False):
        row["outline"] = outline.round().astype(int).tolist()
    return rows


def class_of(detector: Any, index: int) -> list[dict[str, Any]]:
    """Return the most probable class of an image of shapes-cls."""
    (result,) = detector(class_image(index)[..., ::-1].copy())
    return [{"name": result.names[0], "score": round(float(result.scores[0]), 3)}]


def main() -> None:
    parser = new_parser("python -m docs.figures.detect", "Detect for the figures.")
    parser.add_argument("weights", help="of `make demo`, or the public YOLOv5n, for instance")
    weights = parser.parse_args().weights
    detector = duet.load(weights)
    names = tuple(detector.class_names)
    if "cup" not in names and names not in (CLASS_NAMES, tuple(sorted(CLASSES))):
        raise UserError(
            f"{weights}: its classes are {brief(list(names))}; give weights that are trained with "
            "--data shapes, as `make demo` does, or the public YOLOv5n"
        )
    found: dict[Any, list[dict[str, Any]]]
    more = ""
    (first,) = detector(shapes_file(IMAGES[0]).image)
    if "cup" in names:
        path = FOUND_IN_PHOTOS
        command = f"duet detect --img {PHOTO_SIZE} --conf {CONFIDENCE} --source data/images"
        found = {
            photo.name: rows_of(detector(photo, size=PHOTO_SIZE, conf=CONFIDENCE)[0])
            for photo in sorted(PHOTOGRAPHS.glob("*.jpg"))
        }
        whole = sheet()[..., ::-1].copy()
        ways = [rows_of(detector(whole, size=640, conf=SHEET_CONFIDENCE, **way)[0])
                for way in SHEET_WAYS]  # fmt: skip
        more = ',\n"sheet": [\n' + ",\n".join(map(json.dumps, ways)) + "\n]"
    elif isinstance(first, MaskResult):
        path, command = MASKS, "duet train --data shapes-seg"
        found = {index: boxes_and_masks(detector, index, MASKS_CONFIDENCE) for index in SHOWN}
    elif isinstance(first, Result):
        path, command = DETECTIONS, "make demo"
        found = {index: boxes_and_masks(detector, index, LOWEST) for index in IMAGES}
    else:
        path, command = SORTED, "duet train --data shapes-cls"
        found = {index: class_of(detector, index) for index in CLASS_IMAGES}
    lines = [f'"{index}": {json.dumps(rows)}' for index, rows in found.items()]
    with atomic_text_file(path) as file:
        file.write(
            f'{{"command": "{command}", "images": {{\n' + ",\n".join(lines) + f"\n}}{more}}}\n"
        )


if __name__ == "__main__":
    run_command(main)
