"""A dataset and a model of each task, small enough for a test to train on either backend."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from tests.small import SMALL_SHAPES
from utils.data.shapes.dataset import ShapesConfig, draw_class_dataset, draw_dataset
from utils.project import PROJECT
from utils.tasks.table import TASKS

DRAW = {
    "detect": lambda folder: draw_dataset(folder, SMALL_SHAPES),
    "segment": lambda folder: draw_dataset(folder, replace(SMALL_SHAPES, outlines=True)),
    "classify": lambda folder: draw_class_dataset(folder, ShapesConfig(12, 6, 64)),
}


def write_small_task(folder: Path, task: str) -> tuple[Path, Path]:
    """Write a dataset and a narrow model YAML of a task; return both."""
    model = PROJECT / TASKS[task].model.replace("yolov5s", "yolov5n")
    document = yaml.safe_load(model.read_text(encoding="utf-8"))
    path = folder / f"{task}.yaml"
    path.write_text(yaml.safe_dump({**document, "width_multiple": 0.0625}), encoding="utf-8")
    return Path(DRAW[task](folder / f"{task}-data")), path
