"""Detect on a few images of the built-in dataset: python -m docs.figures.detect_shapes WEIGHTS

It writes docs/detections.json, of which `found_shapes.py` draws the picture of the home page.
WEIGHTS are those of `make demo`.
"""

from __future__ import annotations

import json
import sys

import models
from docs.figures.pictures import shapes_file
from utils.files.atomic import atomic_text_file
from utils.files.project import PROJECT
from utils.processes.command import run_command

DETECTIONS = PROJECT / "docs" / "detections.json"
IMAGES = (400, 401, 402)  # the first of the validation split
IMAGE_SIZE = 160  # that of the demo
CONFIDENCE = 0.5


def main() -> None:
    detector = models.load(sys.argv[1])
    found = {}
    for index in IMAGES:
        image = shapes_file(index).image[..., ::-1].copy()
        (result,) = detector(image, size=IMAGE_SIZE, conf=CONFIDENCE)
        found[index] = [
            {
                "name": one.name,
                "score": round(one.score, 3),
                "box_xyxy": [round(value, 1) for value in one.box_xyxy],
            }
            for one in result
        ]
    with atomic_text_file(DETECTIONS) as file:
        file.write(json.dumps({"command": "make demo", "images": found}, indent=1) + "\n")


if __name__ == "__main__":
    run_command(main)
