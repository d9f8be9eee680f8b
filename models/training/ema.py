"""An exponential moving average of a model's weights, used for validation and saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress

from duet.backend import dist, multi_tensor, nn, ops
from duet.backend.contract import Tensor
from duet.models.detector import Detector

DECAY = 0.9999
RAMP = 2000.0  # updates; the average forgets faster at first


class ModelEMA:
    """The EMA of a model's parameters and float buffers.

    Attributes:
        model: a frozen copy in evaluation mode that holds the EMA; integer buffers keep their
            initial values.
        updates: number of updates so far; `settle` takes back a lost one.
    """

    def __init__(self, model: Detector, together: bool = False, share: float = 0.0) -> None:
        """Create the EMA of a model that is already on its device.

        Args:
            together: update all tensors in one pass, which packs both models.
            share: see `decay_after`.
        """
        self._share = share
        self.model = nn.frozen_copy(model)
        self.updates = 0
        self._average = (multi_tensor if together else ops).ema_update_
        self._averages = nn.float_tensors(self.model)
        self._followed, self._values = model, nn.float_tensors(model)
        trained = {id(parameter) for _, parameter in nn.named_parameters(model)}
        self._is_statistic = [id(x) not in trained for x in self._values()]
        if together:
            nn.pack(model)
            nn.pack(self.model)

    def update(self, model: Detector, lost: Tensor | None = None) -> None:
        """Update the EMA with the model's current weights.

        lost: 0-d float32; if 1, the EMA is unchanged and replaces non-finite BatchNorm statistics
            in the model. An overflowing forward pass corrupts them, and training never reads them.
        """
        assert model is self._followed
        self.updates += 1
        averages, values = self._averages(), self._values()
        if lost is not None:
            ops.restore_(self._statistics(values), self._statistics(averages), lost)
        self._average(averages, values, decay_after(self.updates, self._share), lost)

    def _statistics(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(compress(tensors, self._is_statistic))

    def agree(self) -> None:
        """Broadcast rank 0's BatchNorm statistics, which differ between ranks without --sync-bn."""
        trained = dict(nn.named_parameters(self.model))
        for name, x in nn.state_tensors(self.model).items():
            if name not in trained:
                dist.broadcast_(x)


def decay_after(updates: int, share: float = 0.0) -> float:
    """Return the decay of an update, counted from 1.

    share: 0 for the public ramp from 0 towards DECAY, made for runs of many thousand updates.
        Above 0 the average covers about this share of all updates so far, however many there are.

    Source: Karras et al. 2024, arXiv:2312.02696, section 3.1 (power function EMA).
    """
    if share:
        return float((1 - 1 / updates) ** (1 / share))
    return DECAY * (1 - math.exp(-updates / RAMP))
