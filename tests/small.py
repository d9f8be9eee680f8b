"""Datasets and models small enough for a test to train on either backend."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import yaml

from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset

SMALL_SHAPES = ShapesConfig(num_train=12, num_val=6, image_side=64)

# Of detection's results.csv.
RESULT_COLUMNS = (
    "epoch", "train/box_loss", "train/obj_loss", "train/cls_loss",
    "metrics/precision", "metrics/recall", "metrics/mAP_0.5", "metrics/mAP_0.5:0.95",
    "val/box_loss", "val/obj_loss", "val/cls_loss", "x/lr0", "x/lr1", "x/lr2", "seconds/epoch",
    "seconds/data_wait", "seconds/to_device", "seconds/forward", "seconds/loss",
    "seconds/backward", "seconds/optimizer", "seconds/ema", "seconds/validation",
)  # fmt: skip

TINY = """
nc: 5
depth_multiple: 1.0
width_multiple: 1.0
anchors: [[10, 13, 16, 30, 33, 23], [30, 61, 62, 45, 59, 119]]
backbone:
  - [-1, 1, Conv, [8, 6, 4, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, C3, [16]]
  - [-1, 1, Conv, [16, 3, 2]]
head:
  - [[2, 3], 1, Detect, [nc, anchors]]
"""

TINY_SEGMENTER = TINY.replace("Detect, [nc, anchors]", "Segment, [nc, anchors, 6, 64]")

TINY_ANCHOR_FREE = TINY.replace("Detect, [nc, anchors]", "DetectAnchorFree, [nc]")

TINY_CLASSIFIER = """
nc: 3
depth_multiple: 1.0
width_multiple: 1.0
backbone:
  - [-1, 1, Conv, [8, 6, 4, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
head:
  - [-1, 1, Classify, [nc]]
"""
COLOURS = ("blue", "green", "red")
COLOUR_SIDE = 40  # pixels


def write_small_dataset(folder: Path, class_names: Sequence[str] = ()) -> Path:
    """Draw a few small images of shapes, with other class names if given; return the YAML."""
    return with_names(draw_dataset(folder / "shapes", SMALL_SHAPES), class_names)


def with_names(data: Path, class_names: Sequence[str]) -> Path:
    """Give a dataset YAML other class names, unless there are none; return it."""
    document = yaml.safe_load(data.read_text(encoding="utf-8"))
    names = list(class_names) or document["names"]
    data.write_text(yaml.safe_dump({**document, "names": names}), encoding="utf-8")
    return data


def write_outlined_dataset(folder: Path) -> Path:
    """Draw the images of the small dataset with outlines as labels; return its YAML."""
    config = dataclasses.replace(SMALL_SHAPES, outlines=True)
    return draw_dataset(folder / "outlines", config)


def write_small_model(folder: Path, name: str = "yolov5n") -> Path:
    """Write a YOLOv5 of an eighth of the width; return its YAML."""
    document = yaml.safe_load(Path(f"models/{name}.yaml").read_text(encoding="utf-8"))
    path = folder / f"narrow{name.removeprefix('yolov5n')}.yaml"
    path.write_text(yaml.safe_dump({**document, "width_multiple": 0.125}), encoding="utf-8")
    return path


def write_tiny_model(folder: Path) -> Path:
    """Write the smallest detector with every kind of tensor of a YOLOv5; return its YAML."""
    path = folder / "tiny.yaml"
    path.write_text(TINY, encoding="utf-8")
    return path


def write_tiny_anchor_free(folder: Path) -> Path:
    """Write the smallest detector without anchors; return its YAML."""
    path = folder / "tiny-free.yaml"
    lines = [line for line in TINY_ANCHOR_FREE.splitlines() if not line.startswith("anchors")]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def write_tiny_segmenter(folder: Path) -> Path:
    """Write the smallest model of masks; return its YAML."""
    path = folder / "tiny-seg.yaml"
    path.write_text(TINY_SEGMENTER, encoding="utf-8")
    return path


def write_class_folders(
    folder: Path, train: int = 12, val: int = 6, names: Sequence[str] = COLOURS
) -> Path:
    """Draw noise of one of three colours for each class in turn; return the folder."""
    for split, number in (("train", train), ("val", val)):
        for index in range(number):
            random = np.random.default_rng((len(split), index))
            image = random.integers(0, 128, (COLOUR_SIDE, COLOUR_SIDE + 8, 3), np.uint8)
            image[..., index % len(COLOURS)] += 127
            path = folder / split / names[index % len(names)] / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), image)
    return folder


def write_tiny_classifier(folder: Path) -> Path:
    """Write the smallest classifier; return its YAML."""
    path = folder / "tiny-cls.yaml"
    path.write_text(TINY_CLASSIFIER, encoding="utf-8")
    return path
