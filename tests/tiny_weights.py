"""Weights of the smallest models, which find something in any image with some structure."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.utils.weights.checkpoint import Checkpoint, Header, save_checkpoint
from tests.small import TINY, write_tiny_anchor_free, write_tiny_model

CLASS_NAMES = ("circle", "square", "star", "étoile", "三角")
STRIDE = 16
SCORE_GAIN = 2000  # without it all scores are nearly a quarter
BOX_GAIN = 100  # without it all boxes of an anchor have one size


def tiny_checkpoint(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights whose scores lie far apart, by what an image shows."""
    model = initial_model(write_tiny_model(folder), seed)
    gains = [BOX_GAIN] * 4 + [SCORE_GAIN] * (1 + len(CLASS_NAMES))
    arrays = with_gains(model, gains)
    return untrained(model, CLASS_NAMES, arrays)


def initial_model(path: Path, seed: int, num_classes: int | None = None) -> Detector:
    """Return a new model of a YAML."""
    model = Detector(read_model_yaml(path, num_classes))
    model.initialize(seed)
    return model


def with_gains(model: Detector, gains: Sequence[float]) -> dict[str, np.ndarray]:
    """Return the arrays of a model of three anchors a cell, each output times its gain.

    gains: of the outputs of an anchor; biases become 0.
    """
    arrays = nn.state_arrays(model)
    gain = np.array([*gains] * 3, np.float32)[:, None, None, None]
    for name in arrays:
        if name.startswith(f"{model.head_name}m."):
            arrays[name] = arrays[name] * (gain if name.endswith(".weight") else np.float32(0))
    return arrays


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> Path:
    save_checkpoint(path, checkpoint)
    return path


def untrained(
    model: Detector, class_names: Sequence[str], arrays: dict[str, np.ndarray] | None = None
) -> Checkpoint:
    """Return a checkpoint of a model that nobody has trained, with its arrays or others."""
    header = Header(model.spec.document, tuple(class_names))
    arrays = nn.state_arrays(model) if arrays is None else arrays
    return Checkpoint(header, arrays, arrays, {})


def with_trained_size(checkpoint: Checkpoint, size: object) -> Checkpoint:
    """Return the checkpoint as if it had been trained with images of this size; None: unknown."""
    header = dataclasses.replace(checkpoint.header, settings={"image_size": size} if size else {})
    return dataclasses.replace(checkpoint, header=header)


def write_tiny_weights(folder: Path, seed: int = 0, trained_size: int | None = None) -> Path:
    """Write such weights; return their file."""
    checkpoint = with_trained_size(tiny_checkpoint(folder, seed), trained_size)
    return write_checkpoint(folder / f"tiny{seed}.safetensors", checkpoint)


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return an image (H, W, 3) uint8 of coloured blocks."""
    blocks = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    rows, columns = np.arange(height) * 8 // height, np.arange(width) * 8 // width
    return np.ascontiguousarray(blocks[rows][:, columns])


MASK_GAIN = 3000  # without it no place is surer than another
CLASS_GAIN = 20_000  # without it all classes are nearly a fifth
EDGE_GAIN, FREE_SCORE_GAIN = 10_000, 15_000  # for boxes of many sizes, and scores far apart
NUM_MASKS = 4
SEGMENTER = TINY.replace("Detect, [nc, anchors]", f"Segment, [nc, anchors, {NUM_MASKS}, 8]")

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


def tiny_segmenter(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights whose masks have edges within their boxes, which are large."""
    model = initial_model(_written_yaml(folder / "tiny-seg.yaml", SEGMENTER), seed)
    gains = [BOX_GAIN] * 4 + [SCORE_GAIN] * (1 + len(CLASS_NAMES)) + [MASK_GAIN] * NUM_MASKS
    arrays = with_gains(model, gains)
    name = f"{model.head_name}proto.cv3.conv.weight"
    arrays[name] = arrays[name] * np.float32(MASK_GAIN)
    return untrained(model, CLASS_NAMES, arrays)


def tiny_anchor_free(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights of the smallest detector without anchors, whose scores lie far apart."""
    model = initial_model(write_tiny_anchor_free(folder), seed)
    arrays = nn.state_arrays(model)
    for branch, gain in (("cv2", EDGE_GAIN), ("cv3", FREE_SCORE_GAIN)):
        for level in range(len(model.head.strides)):
            prefix = f"{model.head_name}{branch}.{level}.2."
            arrays[f"{prefix}weight"] = arrays[f"{prefix}weight"] * np.float32(gain)
            arrays[f"{prefix}bias"] = arrays[f"{prefix}bias"] * np.float32(0)
    return untrained(model, CLASS_NAMES, arrays)


def tiny_classifier(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights whose best class depends on the image."""
    model = initial_model(_written_yaml(folder / "tiny-cls.yaml", CLASSIFIER), seed)
    arrays = nn.state_arrays(model)
    name = f"{model.head_name}linear.weight"
    arrays[name] = arrays[name] * np.float32(CLASS_GAIN)
    return untrained(model, CLASS_NAMES, arrays)


def _written_yaml(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def write_tiny_segmenter(folder: Path, seed: int = 0) -> Path:
    """Write such weights; return their file."""
    return write_checkpoint(folder / f"segmenter{seed}.safetensors", tiny_segmenter(folder, seed))


def write_tiny_free_weights(folder: Path, seed: int = 0) -> Path:
    """Write such weights; return their file."""
    path = folder / f"free{seed}.safetensors"
    return write_checkpoint(path, tiny_anchor_free(folder, seed))


def write_tiny_classifier(folder: Path, trained_at: int | None = None, seed: int = 0) -> Path:
    """Write such weights; return their file.

    trained_at: the size of the images that their header tells.
    """
    weights = with_trained_size(tiny_classifier(folder, seed), trained_at)
    return write_checkpoint(folder / f"classifier{seed}.safetensors", weights)


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
