"""The plots of a run on the pages: python -m docs.figures.demo_plots [RUN]

It draws plots-results.webp of docs/demo-results.csv, plots-f1.webp and plots-confusion.webp of
docs/detections.json, which `detect.py` writes, and plots-labels.webp of the same images. With RUN,
the folder of a run of `make demo`, it stores losses, metrics and rates of its results.csv first.
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import csv
import tempfile
from pathlib import Path

import cv2
import numpy as np

from docs.figures.detect import DETECTIONS, DOCS
from docs.figures.pictures import CLASS_NAMES, shapes_file
from duet.utils.cli.flags import new_parser
from duet.utils.data.sources.samples import Sample
from duet.utils.evaluation.coco.metric import DetectionEvaluator
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.json_files import read_json
from duet.utils.geometry.boxes import xyxy_to_cxcywh
from duet.utils.geometry.detections import Detections, GroundTruth
from duet.utils.processes.command import run_command
from duet.utils.report.plots.label_statistics import plot_labels
from duet.utils.report.plots.measures import plot_confusion, plot_over_confidence
from duet.utils.report.plots.results import plot_results
from duet.utils.report.results import Results

TABLE = DOCS / "demo-results.csv"
PICTURES = {
    "labels.png": "plots-labels.webp",
    "results.png": "plots-results.webp",
    "F1_curve.png": "plots-f1.webp",
    "confusion_matrix.png": "plots-confusion.webp",
}
QUALITY = 80


def draw_plots(folder: Path) -> None:
    """Draw the pictures as a training does."""
    columns, *rows = csv.reader(TABLE.read_text(encoding="utf-8").splitlines())
    plot_results(Results(columns, rows), folder / "results.png")
    evaluator, samples = DetectionEvaluator(CLASS_NAMES), []
    for index, found in stored_detections().items():
        scene = shapes_file(index)
        evaluator.add(index, found, GroundTruth(scene.class_index, scene.boxes_xyxy))
        size = scene.image.shape[:2]
        boxes = np.float32(xyxy_to_cxcywh(scene.boxes_xyxy) / np.tile(size[::-1], 2))
        samples.append(Sample(Path(f"{index}.jpg"), *size, scene.class_index, boxes))
    plot_labels(samples, CLASS_NAMES, folder / "labels.png")
    result = evaluator.result()
    plot_over_confidence(result, folder)
    plot_confusion(result.confusion, CLASS_NAMES, folder / "confusion_matrix.png")


def stored_detections() -> dict[int, Detections]:
    """Return what the model of `make demo` found in each image of its validation split."""
    return {
        int(index): Detections(
            np.array([one["box_xyxy"] for one in found], np.float32).reshape(-1, 4),
            np.array([one["score"] for one in found], np.float32),
            np.array([CLASS_NAMES.index(one["name"]) for one in found], np.int64),
        )
        for index, found in read_json(DETECTIONS)["images"].items()
    }


def copy_results(run: Path) -> None:
    """Store what the plot shows of a run's results.csv."""
    columns, *rows = csv.reader((run / "results.csv").read_text(encoding="utf-8").splitlines())
    shown = sum(not name.startswith("seconds/") for name in columns)  # the times are last
    with atomic_text_file(TABLE) as file:
        file.writelines(",".join(cells[:shown]) + "\n" for cells in (columns, *rows))


def main() -> None:
    parser = new_parser("python -m docs.figures.demo_plots", "Draw the plots of the pages.")
    parser.add_argument("run", type=Path, nargs="?", help="folder of a run of `make demo`")
    run = parser.parse_args().run
    if run is not None:
        copy_results(run)
    with tempfile.TemporaryDirectory() as folder:
        draw_plots(Path(folder))
        for source, name in PICTURES.items():
            pixels = cv2.imread(str(Path(folder, source)))
            cv2.imwrite(str(DOCS / name), pixels, [cv2.IMWRITE_WEBP_QUALITY, QUALITY])


if __name__ == "__main__":
    run_command(main)
