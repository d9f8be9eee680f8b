"""An exponential moving average of a model's weights: what is validated and kept.

Before: `models/training/step.py::train_step` calls `update` after each optimizer step.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

import numpy as np

from backend import dist, nn, ops
from backend.contract import Tensor
from models.detector import Detector

Average = Callable[[Sequence[Tensor], Sequence[Tensor], float], None]  # as `Ops.ema_update_`

log = logging.getLogger("train")

DECAY = 0.9999
RAMP = 2000.0  # updates; young averages forget faster


class ModelEMA:
    """The EMA of a model's parameters and float buffers.

    Attributes:
        model: a frozen copy in evaluation mode that holds the EMA; integer buffers keep
            their value of the start.
        updates: how many there were.
    """

    def __init__(self, model: Detector, average: Average | None = None) -> None:
        """Make the EMA of a model; `average` does an update, by default the plain one."""
        self.model = nn.frozen_copy(model)
        self.updates = 0
        self._average = average or ops.ema_update_
        self._averages = nn.float_tensors(self.model, fixed=True)  # nobody else has that model
        self._followed, self._values = model, nn.float_tensors(model)

    def update(self, model: Detector) -> None:
        """Take the model's present weights in."""
        if model is not self._followed:
            self._followed, self._values = model, nn.float_tensors(model)
        self.updates += 1
        self._average(self._averages(), self._values(), decay_after(self.updates))

    def agree(self) -> None:
        """Take rank 0's BatchNorm statistics: without --sync-bn each rank has gathered its own."""
        trained = dict(nn.named_parameters(self.model))
        for name, x in nn.state_tensors(self.model).items():
            if name not in trained:
                dist.broadcast_(x)

    def restore_statistics(self, model: Detector) -> None:
        """Replace BatchNorm statistics that are not finite by those of the EMA, and say so.

        A forward pass that overflows leaves its mark in them, and training only writes them. The
        EMA never takes such a state in.
        """
        arrays, trained = nn.state_arrays(model), dict(nn.named_parameters(model))
        spoiled = [
            name
            for name, array in arrays.items()
            if name not in trained and not np.isfinite(array).all()
        ]
        if spoiled:
            average = nn.state_arrays(self.model)
            nn.load_state_arrays(model, arrays | {name: average[name] for name in spoiled})
            log.warning(
                "%d BatchNorm statistics were not finite and are taken from the EMA", len(spoiled)
            )


def decay_after(updates: int) -> float:
    """Return decay of an update, from 0 towards DECAY."""
    return DECAY * (1 - math.exp(-updates / RAMP))
