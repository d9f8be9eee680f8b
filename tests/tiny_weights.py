"""Weights of the smallest detector, which find something in any image with some structure."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from backend import nn
from models.detector import Detector
from models.graph import read_model_yaml
from tests.small import TINY, write_tiny_model
from utils.state.checkpoint import Checkpoint, Header, save_checkpoint

CLASS_NAMES = ("circle", "square", "star", "étoile", "三角")
STRIDE = 16
SCORE_GAIN = 2000  # without it all scores are nearly a quarter
BOX_GAIN = 100  # without it all boxes of an anchor have one size
MASK_GAIN = 3000  # without it no place is surer than another
CLASS_GAIN = 20_000  # without it all classes are nearly a fifth

CLASSIFIER = """
nc: 5
depth_multiple: 1.0
width_multiple: 1.0
backbone:
  - [-1, 1, Conv, [8, 6, 4, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, C3, [16]]
head:
  - [-1, 1, Classify, [nc]]
"""


def tiny_checkpoint(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights whose scores lie far apart, by what an image shows."""
    spec = read_model_yaml(write_tiny_model(folder))
    model = Detector(spec)
    model.initialize(seed)
    arrays = nn.state_arrays(model)
    box = [True] * 4 + [False] * (1 + len(CLASS_NAMES))
    gain = np.where(box * 3, BOX_GAIN, SCORE_GAIN).astype(np.float32)[:, None, None, None]
    for name in arrays:
        if name.startswith(f"{model.head_name}m."):
            arrays[name] = arrays[name] * (gain if name.endswith(".weight") else np.float32(0))
    return Checkpoint(header_of(model, CLASS_NAMES), arrays, arrays, {})


def tiny_segmenter(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights whose masks have edges within their boxes, which are large."""
    path = folder / "tiny-seg.yaml"
    path.write_text(
        TINY.replace("[nc, anchors]", "[nc, anchors, 4, 8]").replace("Detect", "Segment")
    )
    model = Detector(read_model_yaml(path))
    model.initialize(seed)
    arrays = nn.state_arrays(model)
    gains = np.repeat([BOX_GAIN, SCORE_GAIN, MASK_GAIN], [4, 1 + len(CLASS_NAMES), 4])
    gain = np.tile(gains, 3).astype(np.float32)[:, None, None, None]  # of three anchors
    for name in arrays:
        if name.startswith(f"{model.head_name}m."):
            arrays[name] = arrays[name] * (gain if name.endswith(".weight") else np.float32(0))
        elif name == f"{model.head_name}proto.cv3.conv.weight":
            arrays[name] = arrays[name] * np.float32(MASK_GAIN)
    return Checkpoint(header_of(model, CLASS_NAMES), arrays, arrays, {})


def tiny_classifier(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights whose best class depends on the image."""
    path = folder / "tiny-cls.yaml"
    path.write_text(CLASSIFIER)
    model = Detector(read_model_yaml(path))
    model.initialize(seed)
    arrays = nn.state_arrays(model)
    name = f"{model.head_name}linear.weight"
    arrays[name] = arrays[name] * np.float32(CLASS_GAIN)
    return Checkpoint(header_of(model, CLASS_NAMES), arrays, arrays, {})


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> Path:
    save_checkpoint(path, checkpoint)
    return path


def header_of(model: Detector, class_names: tuple[str, ...]) -> Header:
    """Return what a checkpoint says of a model that nobody has trained."""
    return Header(
        model=model.spec.document,
        class_names=class_names,
        epoch=0,
        batch_number=0,
        last_update=-1,
        ema_updates=0,
        best_fitness=0.0,
        hyperparameters={},
        settings={},
        backend="",
    )


def write_tiny_weights(folder: Path, seed: int = 0) -> Path:
    """Write such weights; return their file."""
    path = folder / f"tiny{seed}.safetensors"
    save_checkpoint(path, tiny_checkpoint(folder, seed))
    return path


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return an image (H, W, 3) uint8 of coloured blocks."""
    blocks = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    rows, columns = np.arange(height) * 8 // height, np.arange(width) * 8 // width
    return np.ascontiguousarray(blocks[rows][:, columns])
