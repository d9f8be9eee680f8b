"""Weights of the smallest models of other tasks, which find something in any image."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from backend import nn
from models.detector import Detector
from models.graph import read_model_yaml
from tests.small import TINY
from tests.tiny_weights import BOX_GAIN, CLASS_NAMES, SCORE_GAIN, header_of
from utils.state.checkpoint import Checkpoint, save_checkpoint

NUM_MASKS = 4
SEGMENTER = TINY.replace("Detect, [nc, anchors]", f"Segment, [nc, anchors, {NUM_MASKS}, 8]")


def write_tiny_segmenter(folder: Path, seed: int = 0) -> Path:
    """Write weights whose scores lie far apart and whose masks differ; return their file."""
    arrays, model = initial_arrays(SEGMENTER, folder, seed)
    gains = [BOX_GAIN] * 4 + [SCORE_GAIN] * (1 + len(CLASS_NAMES)) + [BOX_GAIN] * NUM_MASKS
    gain = np.array(gains * 3, np.float32)[:, None, None, None]
    for name in arrays:
        if name.startswith(f"{model.head_name}m."):
            arrays[name] = arrays[name] * (gain if name.endswith(".weight") else np.float32(0))
    return written(folder / f"segmenter{seed}.safetensors", model, arrays)


def initial_arrays(yaml: str, folder: Path, seed: int) -> tuple[dict[str, np.ndarray], Detector]:
    """A new model of a YAML, and its arrays by name."""
    path = folder / "model.yaml"
    path.write_text(yaml, encoding="utf-8")
    model = Detector(read_model_yaml(path))
    model.initialize(seed)
    return nn.state_arrays(model), model


def written(path: Path, model: Detector, arrays: dict[str, np.ndarray]) -> Path:
    """Write arrays of a model as weights; return their file."""
    save_checkpoint(path, Checkpoint(header_of(model, CLASS_NAMES), arrays, arrays, {}))
    return path
