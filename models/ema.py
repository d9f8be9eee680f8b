"""An exponential moving average of a model's weights: what is validated and kept.

Before: `train.py::train_step` calls `update` after each optimizer step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from backend import nn, ops
from backend.contract import Tensor

if TYPE_CHECKING:
    from models.detector import Detector

DECAY = 0.9999
RAMP = 2000.0  # updates; young averages forget faster


class ModelEMA:
    """The average of a model's parameters and float buffers.

    Attributes:
        model: a frozen copy in evaluation mode that holds the average; integer buffers keep
            their value of the start.
        updates: how many there were.
    """

    def __init__(self, model: Detector) -> None:
        self.model = nn.frozen_copy(model)
        self.updates = 0
        self._averages = _float_tensors(self.model)

    def update(self, model: Detector) -> None:
        """Take the model's present weights in."""
        self.updates += 1
        ops.ema_update_(self._averages, _float_tensors(model), decay_after(self.updates))


def decay_after(updates: int) -> float:
    """Decay of an update, from 0 towards DECAY."""
    return DECAY * (1 - math.exp(-updates / RAMP))


def _float_tensors(model: Detector) -> list[Tensor]:
    return [
        tensor
        for tensor in nn.state_tensors(model).values()
        if ops.dtype_of(tensor).startswith("float")
    ]
