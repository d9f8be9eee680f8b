"""A dataset of one folder per class, and a classifier small enough for a test to train."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

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
CLASS_NAMES = ("blue", "green", "red")
SIDE = 40  # pixels


def write_class_folders(folder: Path, train: int = 12, val: int = 6) -> Path:
    """Draw noise of one colour a class, in turn; return the folder."""
    for split, number in (("train", train), ("val", val)):
        for index in range(number):
            random = np.random.default_rng((len(split), index))
            image = random.integers(0, 128, (SIDE, SIDE + 8, 3), np.uint8)
            image[..., index % len(CLASS_NAMES)] += 127
            path = folder / split / CLASS_NAMES[index % len(CLASS_NAMES)] / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), image)
    return folder


def write_tiny_classifier(folder: Path) -> Path:
    """Write the smallest classifier; return its YAML."""
    path = folder / "tiny-cls.yaml"
    path.write_text(TINY_CLASSIFIER, encoding="utf-8")
    return path
