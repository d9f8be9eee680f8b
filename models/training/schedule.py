"""Learning rate, momentum and gradient accumulation per batch, as in the public YOLOv5."""

from __future__ import annotations

import math
from dataclasses import dataclass

from duet.utils.cli.hyperparameters import Hyperparameters

MIN_WARMUP_BATCHES = 100


@dataclass(frozen=True)
class StepSettings:
    """The settings of one batch."""

    bias_rate: float  # learning rate of biases
    weight_rate: float  # learning rate of convolution and BatchNorm weights
    momentum: float
    accumulate: int  # batches per optimizer step


@dataclass(frozen=True)
class Schedule:
    """Settings as a function of the batch number since the start of training."""

    hyp: Hyperparameters
    epochs: int
    batches_per_epoch: int
    batch_size: int
    cosine: bool
    accumulates: bool = True  # add up small batches to `nbs` images per optimizer step

    @property
    def nominal_batch(self) -> float:
        """Images per optimizer step; smaller batches are accumulated."""
        return self.hyp.nbs if self.accumulates else self.batch_size

    @property
    def accumulate(self) -> int:
        """Batches per optimizer step after the warm-up."""
        return max(round(self.nominal_batch / self.batch_size), 1)

    @property
    def weight_decay(self) -> float:
        """L2 factor, scaled to the actual accumulated batch size."""
        return self.hyp.weight_decay * self.batch_size * self.accumulate / self.nominal_batch

    @property
    def warmup_batches(self) -> int:
        """Number of warm-up batches; 0 for no warm-up."""
        if self.hyp.warmup_epochs == 0:
            return 0
        wanted = max(round(self.hyp.warmup_epochs * self.batches_per_epoch), MIN_WARMUP_BATCHES)
        if self.hyp.warmup_share == 1:
            return wanted  # as in YOLOv5: a shorter run ends within its warm-up
        return min(wanted, round(self.hyp.warmup_share * self.epochs * self.batches_per_epoch))

    def at(self, batch_number: int) -> StepSettings:
        """Return the settings of a batch, counted from 0 over all epochs."""
        epoch = batch_number // self.batches_per_epoch
        if batch_number > self.warmup_batches or self.warmup_batches == 0:
            # The public schedule steps at the end of each epoch, so the rate lags an epoch behind,
            # except in the epoch in which the warm-up ends.
            lag = 0 if epoch == self.warmup_batches // self.batches_per_epoch else 1
            rate = self.hyp.lr0 * self._decay(epoch - lag)
            return StepSettings(rate, rate, self.hyp.momentum, self.accumulate)
        rate = self.hyp.lr0 * self._decay(epoch)
        progress = batch_number / self.warmup_batches
        return StepSettings(
            bias_rate=_blend(self.hyp.warmup_bias_lr, rate, progress),
            weight_rate=_blend(0.0, rate, progress),
            momentum=_blend(self.hyp.warmup_momentum, self.hyp.momentum, progress),
            accumulate=max(round(_blend(1, self.nominal_batch / self.batch_size, progress)), 1),
        )

    def _decay(self, epoch: int) -> float:
        """Return the learning rate factor in an epoch, falling from 1 towards lrf."""
        progress = epoch / self.epochs
        if self.cosine:
            progress = (1 - math.cos(math.pi * progress)) / 2
        return _blend(1.0, self.hyp.lrf, progress)


def _blend(start: float, end: float, progress: float) -> float:
    return start + (end - start) * progress
