"""Weights of the smallest models of other tasks, which find something in any image."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from backend import nn
from models.detector import Detector
from models.graph import read_model_yaml
from tests.small import TINY
from tests.tiny_weights import BOX_GAIN, CLASS_NAMES, SCORE_GAIN, header_of
from utils.state.checkpoint import Checkpoint, save_checkpoint

LOGIT_GAIN = 500  # without it all classes are as probable
NO_SETTINGS: Mapping[str, Any] = {}
NUM_MASKS = 4
SEGMENTER = TINY.replace("Detect, [nc, anchors]", f"Segment, [nc, anchors, {NUM_MASKS}, 8]")

CLASSIFIER = """
nc: 5
depth_multiple: 1.0
width_multiple: 1.0
backbone:
  - [-1, 1, Conv, [8, 6, 4, 2]]
  - [-1, 1, Conv, [16, 3, 4]]
head:
  - [-1, 1, Classify, [nc]]
"""


def write_tiny_segmenter(folder: Path, seed: int = 0) -> Path:
    """Write weights whose scores lie far apart and whose masks differ; return their file."""
    arrays, model = initial_arrays(SEGMENTER, folder, seed)
    gains = [BOX_GAIN] * 4 + [SCORE_GAIN] * (1 + len(CLASS_NAMES)) + [BOX_GAIN] * NUM_MASKS
    gain = np.array(gains * 3, np.float32)[:, None, None, None]
    for name in arrays:
        if name.startswith(f"{model.head_name}m."):
            arrays[name] = arrays[name] * (gain if name.endswith(".weight") else np.float32(0))
    return written(folder / f"segmenter{seed}.safetensors", model, arrays)


def write_tiny_classifier(folder: Path, trained_at: int | None = None, seed: int = 0) -> Path:
    """Write weights whose classes differ from image to image; return their file.

    trained_at: the size of the images that their header tells.
    """
    arrays, model = initial_arrays(CLASSIFIER, folder, seed)
    name = f"{model.head_name}linear.weight"
    arrays[name] = arrays[name] * np.float32(LOGIT_GAIN)
    settings = {} if trained_at is None else {"image_size": trained_at}
    return written(folder / f"classifier{seed}.safetensors", model, arrays, settings)


def with_polygons(data: Path) -> None:
    """Make a diamond of each second box of a dataset."""
    for path in (data.parent / "labels").glob("*/*.txt"):
        lines = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            label, *box = line.split()
            x, y, width, height = map(float, box)
            corners = np.array([[0, -height], [width, 0], [0, height], [-width, 0]]) / 2 + [x, y]
            corners = " ".join(f"{value:.6f}" for value in corners.clip(0, 1).ravel())
            lines.append(f"{label} {corners}" if number % 2 else line)
        path.write_text("\n".join(lines), encoding="utf-8")


def initial_arrays(yaml: str, folder: Path, seed: int) -> tuple[dict[str, np.ndarray], Detector]:
    """A new model of a YAML, and its arrays by name."""
    path = folder / "model.yaml"
    path.write_text(yaml, encoding="utf-8")
    model = Detector(read_model_yaml(path))
    model.initialize(seed)
    return nn.state_arrays(model), model


def written(
    path: Path,
    model: Detector,
    arrays: dict[str, np.ndarray],
    settings: Mapping[str, Any] = NO_SETTINGS,
) -> Path:
    """Write arrays of a model as weights; return their file."""
    header = dataclasses.replace(header_of(model, CLASS_NAMES), settings=settings)
    save_checkpoint(path, Checkpoint(header, arrays, arrays, {}))
    return path
