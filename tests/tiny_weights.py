"""Weights of the smallest detector, which find something in any image with some structure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.utils.weights.checkpoint import Checkpoint, Header, save_checkpoint
from tests.small import write_tiny_model

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
