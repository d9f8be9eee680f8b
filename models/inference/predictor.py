"""What turns images into predictions: a model, one with augmentation, or several together.

Before: `models/stored.py` builds a model from weights. After: `image_detector.py`, and
`models/evaluation.py`, which take whatever is a `Predictor`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

import backend
from models.detector import Detector
from models.heads.base import Head
from models.stored import detector_of_weights
from utils.cli.detection_config import DetectionConfig
from utils.evaluation.nms import SuppressionSettings
from utils.state.checkpoint import Checkpoint


class Predictor(Protocol):
    """A model as those see it who only detect; `Detector` is one."""

    @property
    def head(self) -> Head:
        """The head whose task it is, and which finishes what it predicts."""

    @property
    def stride(self) -> int:
        """Pixels that image sides must be a multiple of."""

    def __call__(self, *inputs: Any) -> Any:
        """Queue the work on one tensor (B, 3, H, W) in [0, 1]; return what `decode_above` takes."""

    def decode_above(self, raw: Any, confidence_threshold: float) -> list[np.ndarray]:
        """Return of each image the rows that may count as found, as `Head.decode_above` does."""


def make_predictor(weights: Sequence[Checkpoint], device: str) -> Predictor:
    """Build the EMA of each checkpoint in evaluation mode on a device, and join them.

    Raises:
        UserError: weights without a model, or one that this project cannot build as it was.
    """
    (checkpoint,) = weights
    return load_detector(checkpoint, device)


def load_detector(checkpoint: Checkpoint, device: str) -> Detector:
    """Build the EMA of a checkpoint, in evaluation mode on a device; errors as above."""
    model = detector_of_weights(checkpoint)
    return backend.nn.frozen_copy(backend.nn.place(model, device, "float32"))


def suppression_settings(config: DetectionConfig, multi_label: bool) -> SuppressionSettings:
    """Return the flags that say what counts as found.

    Args:
        multi_label: a box may be found once for each of its classes, as a metric wants it.
    """
    names = {field.name for field in dataclasses.fields(SuppressionSettings)} - {"multi_label"}
    values = {name: getattr(config, name) for name in names}
    return SuppressionSettings(multi_label=multi_label, **values)
