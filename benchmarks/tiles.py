"""Figures and milliseconds of small objects in large images: with tiles, and resized as a whole.

    python -m benchmarks.tiles --weights yolov5n.pt --data coco256.yaml --device cpu --repeats 1

The large images are mosaics: of --grid x --grid images of the split 'val' as they are, each in a
cell of its own. All of them are used, once. Each way detects in the same mosaics, in turns. They do
unequal work, so the table has the figures of each next to its time. Without --weights the model is
untrained: the times are right, the figures are not.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from backend.words import count
from benchmarks.side_by_side import choose_device, finish, new_parser, time_in_turns
from benchmarks.split import read_val_split
from benchmarks.val import build_model
from utils.cli.flags import from_one
from utils.data.image.resizing import FILL
from utils.data.image.tiling import OVERLAP, Tiling
from utils.data.loading.reading import pixel_boxes, read_ahead
from utils.data.sources.samples import Sample
from utils.detections import GroundTruth
from utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from utils.evaluation.nms import SuppressionSettings
from utils.processes.command import run_command

MAX_DETECTIONS = 300  # of an image in a mosaic
FIGURES = ("AP", "AP50", "APsmall", "APmedium", "APlarge")


def mosaics(samples: Sequence[Sample], grid: int) -> Iterator[tuple[np.ndarray, GroundTruth]]:
    """Yield large images (H, W, 3) uint8 RGB and their objects; the last may have fewer rows."""
    cell = max(max(sample.height, sample.width) for sample in samples)
    for first in range(0, len(samples), grid * grid):
        chosen = samples[first : first + grid * grid]
        canvas = np.full((-(-len(chosen) // grid) * cell, grid * cell, 3), FILL, np.uint8)
        boxes = []
        for place, (sample, image) in enumerate(zip(chosen, read_ahead(chosen), strict=True)):
            top, left = (cell * index for index in divmod(place, grid))
            canvas[top : top + sample.height, left : left + sample.width] = image
            boxes.append(pixel_boxes(sample) + [left, top, left, top])
        class_index = np.concatenate([sample.class_index for sample in chosen])
        yield canvas, GroundTruth(class_index, np.concatenate(boxes))


def detect(
    detector: Any, images: Sequence[tuple[np.ndarray, GroundTruth]], class_names: Sequence[str]
) -> EvaluationResult:
    """Detect in all mosaics and score what is found."""
    evaluator = DetectionEvaluator(class_names)
    for index, (image, objects) in enumerate(images):
        (found,) = detector.detect([image])
        evaluator.add(index, found, objects)
    return evaluator.result()


def main() -> None:
    parser = new_parser("tiles", "Large images in tiles, and as a whole.", repeats=3)
    add = parser.add_argument
    add("--weights", default="", metavar="F", help="default: untrained weights of --cfg")
    add("--cfg", default="models/yolov5n.yaml", metavar="F")
    add("--data", default="shapes", metavar="D", help="its split 'val'")
    add("--grid", type=from_one, default=6, metavar="N", help="images a side of a mosaic")
    add("--img", type=from_one, nargs="+", default=[640, 1280, 1920], metavar="PX",
        help="long sides of whole mosaics; the first is that of a tile too")  # fmt: skip
    add("--tile", type=from_one, nargs="+", default=[640], metavar="PX")
    add("--overlap", type=float, default=OVERLAP, metavar="X")
    add("--batch", type=from_one, default=16, metavar="N", help="tiles per batch")
    add("--images", type=from_one, metavar="N", help="only the first N of the split")
    flags = parser.parse_args()
    device = choose_device(flags)
    samples, class_names = read_val_split(flags)
    model = build_model(flags, class_names, device)
    from models.inference.image_detector import ImageDetector

    ways: dict[str, tuple[int, Tiling | None]] = {
        f"whole, --img {size}": (size, None) for size in flags.img
    }
    for side in flags.tile:
        ways[f"--img {flags.img[0]} --tile {side}"] = (
            flags.img[0],
            Tiling(side, flags.overlap, flags.batch),
        )
    settings = SuppressionSettings(max_detections=MAX_DETECTIONS * flags.grid**2)
    images = list(mosaics(samples, flags.grid))
    results: dict[str, EvaluationResult] = {}

    def run(name: str) -> None:
        detector = ImageDetector(model, device, ways[name][0], settings, ways[name][1])
        results[name] = detect(detector, images, class_names)

    height, width = images[0][0].shape[:2]
    case = f"{count(len(images), 'mosaic')}, {width} x {height} px"
    runs = {name: partial(run, name) for name in ways}
    timings = time_in_turns(case, runs, device, flags.repeats, warm_up=0)
    print(f"{'':<32}{''.join(f'{name:>10}' for name in FIGURES)}")
    for name, result in results.items():
        values = result.summary()
        print(f"{name:<32}{''.join(f'{values[figure]:>10.4f}' for figure in FIGURES)}")
    finish(flags, timings, device)


if __name__ == "__main__":
    run_command(main)
