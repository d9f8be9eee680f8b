"""A dataset and a model small enough for a test to train on either backend."""

from __future__ import annotations

from pathlib import Path

import yaml

from utils.data.shapes import ShapesConfig, draw_dataset

SMALL_SHAPES = ShapesConfig(num_train=12, num_val=6, image_side=64)


def write_small_dataset(folder: Path) -> Path:
    """Draw a few small images of shapes; returns the dataset YAML."""
    return draw_dataset(folder / "shapes", SMALL_SHAPES)


def write_small_model(folder: Path) -> Path:
    """A YOLOv5 of an eighth of the width; returns its YAML."""
    document = yaml.safe_load(Path("models/yolov5n.yaml").read_text(encoding="utf-8"))
    path = folder / "narrow.yaml"
    path.write_text(yaml.safe_dump({**document, "width_multiple": 0.125}), encoding="utf-8")
    return path
