"""Detect in the photographs of data/images: python -m docs.figures.detect_photos WEIGHTS

It writes docs/photos.json, of which `photos.py` draws a figure. WEIGHTS are the public YOLOv5n.
"""

from __future__ import annotations

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import json

import duet
from docs.figures.detect_shapes import rows_of
from docs.figures.pictures import DETECTIONS, PHOTOGRAPHS
from duet.utils.cli.flags import new_parser
from duet.utils.files.atomic import atomic_text_file
from duet.utils.processes.command import run_command

IMAGE_SIZE = 320
CONFIDENCE = 0.5


def main() -> None:
    parser = new_parser("python -m docs.figures.detect_photos", "Detect in data/images.")
    parser.add_argument("weights", help="the public YOLOv5n, as `duet fetch` brings it")
    detector = duet.load(parser.parse_args().weights)
    found = {}
    for path in sorted(PHOTOGRAPHS.glob("*.jpg")):
        (result,) = detector(path, size=IMAGE_SIZE, conf=CONFIDENCE)
        found[path.name] = rows_of(result)
    command = f"duet detect --img {IMAGE_SIZE} --conf {CONFIDENCE} --source data/images"
    with atomic_text_file(DETECTIONS) as file:
        file.write(json.dumps({"command": command, "images": found}, indent=1) + "\n")


if __name__ == "__main__":
    run_command(main)
