"""Detect on a few images of the built-in dataset: python -m docs.figures.detect_shapes WEIGHTS

It writes docs/detections.json, of which `found_shapes.py` draws a figure. WEIGHTS are those of
`make demo`; those of a segmentation of shapes-seg give docs/masks.json for `found_masks.py`.
"""

from __future__ import annotations

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import json
from typing import Any

import duet
from docs.figures.pictures import CLASS_NAMES, shapes_file
from duet.utils.cli.flags import new_parser
from duet.utils.detect.results.result import MaskResult, Result
from duet.utils.errors import UserError, brief
from duet.utils.files.atomic import atomic_text_file
from duet.utils.processes.command import run_command
from duet.utils.project import PROJECT

DETECTIONS, MASKS = PROJECT / "docs" / "detections.json", PROJECT / "docs" / "masks.json"
IMAGES = (400, 401, 402)  # the first of the validation split
IMAGE_SIZE, MASKS_SIZE = 160, 192  # those of the demos
CONFIDENCE, MASKS_CONFIDENCE = 0.5, 0.35


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


def main() -> None:
    parser = new_parser("python -m docs.figures.detect_shapes", "Detect on built-in images.")
    parser.add_argument("weights", help="of the built-in dataset, as `make demo` leaves them")
    weights = parser.parse_args().weights
    detector = duet.load(weights)
    if tuple(detector.class_names) != CLASS_NAMES:
        raise UserError(
            f"{weights}: its classes are {brief(list(detector.class_names))}; give weights that "
            "are trained with --data shapes, as `make demo` does"
        )
    found = {}
    path, size, command = DETECTIONS, IMAGE_SIZE, "make demo"
    for index in IMAGES:
        image = shapes_file(index).image[..., ::-1].copy()
        (result,) = detector(image, size=size, conf=CONFIDENCE)
        if isinstance(result, MaskResult):
            path, size, command = MASKS, MASKS_SIZE, "duet train --data shapes-seg"
            (result,) = detector(image, size=size, conf=MASKS_CONFIDENCE)
        found[index] = rows_of(result)
        for row, outline in zip(found[index], getattr(result, "outlines", ()), strict=False):
            row["outline"] = outline.round().astype(int).tolist()
    with atomic_text_file(path) as file:
        file.write(json.dumps({"command": command, "images": found}, indent=1) + "\n")


if __name__ == "__main__":
    run_command(main)
