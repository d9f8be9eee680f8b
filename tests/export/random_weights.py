"""Weights without training of any model, with the statistics of BatchNorm far from 0 and 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

from duet.backend import nn
from duet.models.detector import Detector
from duet.utils.weights.checkpoint import save_checkpoint
from tests.tiny_weights import initial_model, untrained

NAMES = ("a", "b")


def write_random_weights(cfg: str, path: Path, width: float | None = None) -> Detector:
    """Write weights of a model YAML for two classes; return their model, not folded.

    width: in place of the model's width_multiple.
    """
    document = yaml.safe_load(Path(cfg).read_text(encoding="utf-8"))
    copy = path.with_suffix(".yaml")
    copy.write_text(yaml.safe_dump(document | ({"width_multiple": width} if width else {})))
    model = initial_model(copy, 1, len(NAMES))
    arrays = _with_statistics(nn.state_arrays(model))
    nn.load_state_arrays(model, arrays)
    save_checkpoint(path, untrained(model, NAMES))
    return model


def _with_statistics(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draw what BatchNorm learns, so that maps keep their size and no layer is without effect."""
    random = np.random.default_rng(2)
    ranges = {
        "bn.weight": (0.7, 1.3),
        "bn.bias": (-0.5, 0.5),
        "bn.running_mean": (-0.2, 0.2),
        "bn.running_var": (0.15, 0.25),
    }
    drawn = dict(arrays)
    for name, array in arrays.items():
        for ending, bounds in ranges.items():
            if name.endswith(ending):
                drawn[name] = random.uniform(*bounds, array.shape).astype(np.float32)
    return drawn
