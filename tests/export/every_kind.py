"""Files of every kind of a detector, a segmenter and a classifier, written by one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.export.exported_models import Exported
from tests.export.recorded_files import write_graphs
from tests.tiny_tasks import tiny_classifier, tiny_segmenter
from tests.tiny_weights import noise, write_checkpoint, write_tiny_weights

SQUARE, WIDE = ["--imgsz", "64"], ["--imgsz", "64", "96"]
FLAGS = {
    "plain": WIDE,
    "batch": [*WIDE, "--batch-size", "3"],
    "dynamic": [*WIDE, "--dynamic"],
    "half": [*WIDE, "--half"],
    "nms": [*WIDE, "--nms", "--conf", "0.2", "--topk-all", "7", "--topk-per-class", "3"],
    "agnostic": [*WIDE, "--nms", "--agnostic-nms"],
    "other": WIDE,
    "mask rows": WIDE,
    "mask batch": [*WIDE, "--batch-size", "2"],
    "mask dynamic": [*WIDE, "--dynamic"],
    "mask half": [*WIDE, "--half"],
    "mask nms": [*WIDE, "--nms", "--conf", "0.2", "--topk-all", "20"],
    "mask dynamic nms": [*WIDE, "--nms", "--dynamic", "--agnostic-nms"],
    "mask half nms": [*WIDE, "--nms", "--half"],
    "class plain": SQUARE,
    "class batch": [*SQUARE, "--batch-size", "2"],
    "class dynamic": [*SQUARE, "--dynamic"],
    "class half": [*SQUARE, "--half"],
    "class oldest": [*SQUARE, "--opset", "13"],
    "class newest": [*SQUARE, "--opset", "21"],
}
IMAGES = [noise(64, 96, 1), noise(50, 96, 2), noise(64, 70, 3)]
SQUARES = [noise(64, 64, seed) for seed in range(3)]


def write_every_kind(folder: Path) -> Callable[[str], Exported]:
    """Write all graphs; return what makes the file of a name, new each time."""
    weights = {
        "mask": write_checkpoint(folder / "mask.safetensors", tiny_segmenter(folder)),
        "class": write_checkpoint(folder / "class.safetensors", tiny_classifier(folder)),
        "other": write_tiny_weights(folder, seed=1),
    }
    plain = write_tiny_weights(folder)
    words = {
        name: ["--weights", str(weights.get(name.split()[0], plain)), *flags]
        for name, flags in FLAGS.items()
    }
    graphs = write_graphs(folder, words)

    def make(name: str) -> Exported:
        task = name.split()[0]
        compared = plain if task == "other" else weights.get(task, plain)
        images = SQUARES if task == "class" else IMAGES
        return Exported(graphs[name], compared, words[name], images)

    return make
