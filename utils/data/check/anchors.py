"""The anchors that a training would begin with.

Before: --cfg and --weights. After: `figures.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from utils.files.models import read_model
from utils.weights.load import load_weights, model_document

DEFAULT_MODEL = "yolov5s"


def read_anchors(cfg: str, weights: str) -> np.ndarray:
    """Return the anchors of --cfg, else of --weights, else of yolov5s: (A, 2) pixels.

    Without any in the model A is 0.

    Raises:
        UserError: no such file, or it cannot be read.
    """
    if cfg or not weights:
        return anchors_of(read_model(cfg or DEFAULT_MODEL)[1])
    return anchors_of(model_document(load_weights(weights)))


def anchors_of(document: Mapping[Any, Any]) -> np.ndarray:
    """Return the anchors of a model YAML, (A, 2); A is 0 where they are not listed."""
    levels = document.get("anchors")
    if not isinstance(levels, list) or not all(isinstance(level, list) for level in levels):
        return np.zeros((0, 2))
    numbers = [x for x in chain.from_iterable(levels) if isinstance(x, (int, float))]
    return np.array(numbers[: len(numbers) // 2 * 2], np.float64).reshape(-1, 2)
