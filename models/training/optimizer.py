"""The optimizer, loss scale and EMA: parameter groups, settings per batch as in YOLOv5.

As in the public YOLOv5, BatchNorm layers frozen by --freeze keep updating their running statistics:
the whole model is in training mode.
"""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

from duet.backend import amp, dist, multi_tensor, nn, ops, optim
from duet.backend.contract import Optimizer, Tensor
from duet.backend.processes import this_process
from duet.models.detector import Detector
from duet.models.heads.base import LossTerms
from duet.utils.cli.hyperparameters import Hyperparameters
from duet.utils.errors import UserError

Groups = list[tuple[dict[str, Tensor], float]]

MIN_WARMUP_BATCHES = 100
DECAY = 0.9999  # of the EMA
RAMP = 2000.0  # updates; the average forgets faster at first
# Of the loss in float16.
INITIAL = 2.0**16
GROWTH, BACKOFF = 2.0, 0.5
GROWTH_INTERVAL = 2000  # consecutive updates without overflow
LIMITS = 1.0, 2.0**24

log = logging.getLogger("train")


def build_optimizer(
    name: str, groups: Groups, hyp: Hyperparameters, together: bool = False
) -> Optimizer:
    """Return the optimizer for --optimizer; UserError if momentum is invalid as Adam's beta1.

    together: update all tensors in one pass.
    """
    optimizers = multi_tensor if together else optim
    if name == "SGD":
        return optimizers.SGD(groups)
    for key in ("momentum", "warmup_momentum"):
        if getattr(hyp, key) >= 1:
            raise UserError(
                f"{key}: {getattr(hyp, key)} is used as beta1 of {name}; accepted: a number from "
                "0 to below 1, such as 0.9"
            )
    return getattr(optimizers, name)(groups)


def parameter_groups(model: Detector, weight_decay: float) -> Groups:
    """Return the three groups of the recipe: biases, decayed weights, and BatchNorm weights.

    Frozen parameters are excluded.
    """
    biases: dict[str, Tensor] = {}
    weights: dict[str, Tensor] = {}
    norms: dict[str, Tensor] = {}
    for name, parameter in nn.named_parameters(model):
        if not parameter.requires_grad:
            continue
        group = biases if name.endswith(".bias") else weights if parameter.ndim > 1 else norms
        group[name] = parameter
    return [(biases, 0.0), (weights, weight_decay), (norms, 0.0)]


def freeze_layers(model: Detector, num_layers: int, freeze: Sequence[str]) -> None:
    """Freeze the parameters named by --freeze; log their number."""
    parameters = dict(nn.named_parameters(model))
    frozen = frozen_names(list(parameters), num_layers, freeze)
    if len(frozen) == len(parameters):
        raise UserError(f"--freeze {' '.join(freeze)} freezes all layers; freeze fewer")
    if frozen:
        nn.set_trainable([parameters[name] for name in frozen], False)
        log.info("frozen: %d of %d parameters (--freeze)", len(frozen), len(parameters))


def frozen_names(names: Sequence[str], num_layers: int, freeze: Sequence[str]) -> list[str]:
    """Return the parameters named by --freeze, in order.

    Args:
        names: dotted names of all parameters, such as "model.0.conv.weight".
        num_layers: number of the model's layers.
        freeze: a single number N for the first N layers, several numbers for the layers at these
            indices; or names of layers or their parts, such as "model.24.m".

    Raises:
        UserError: an index out of range or an unknown name; the message suggests others.
    """
    prefixes, is_alone = [], len(freeze) == 1
    for entry in freeze:
        if entry.isdecimal():
            layers = range(int(entry)) if is_alone else [int(entry)]
            if layers and layers[-1] >= num_layers:
                raise UserError(f"--freeze {entry}: the model has layers 0 to {num_layers - 1}")
            prefixes += [f"model.{index}" for index in layers]
        elif any(f"{name}.".startswith(f"{entry}.") for name in names):
            prefixes.append(entry)
        else:
            known = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
            near = ", ".join(difflib.get_close_matches(entry, known) or known[-3:])
            raise UserError(
                f"--freeze {entry} matches no parameter; accepted: layers from 0 to "
                f"{num_layers - 1}, or names such as {near}"
            )
    return [name for name in names if any(f"{name}.".startswith(f"{x}.") for x in prefixes)]


@dataclass(frozen=True)
class StepSettings:
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


@dataclass
class LossScale:
    """Loss scale that halves when gradients overflow and doubles after many finite updates.

    It keeps small gradients from vanishing: Micikevicius et al. 2017, arXiv:1710.03740, 3.2.

    Attributes:
        value: constant 1 unless the network computes in float16, whose range is too small.
    """

    value: float = 1.0
    adapts: bool = False
    finite_updates: int = 0

    @classmethod
    def of_precision(cls, dtype: str) -> LossScale:
        if dtype != "float16":
            return cls()
        # Totals include the number of ranks as a factor: see `BatchParts`.
        return cls(INITIAL / this_process().world_size, adapts=True)

    @property
    def can_fall(self) -> bool:
        return self.adapts and self.value > LIMITS[0]

    def scaled(self, loss: Callable[..., LossTerms]) -> Callable[..., LossTerms]:
        """Return the loss with `total` multiplied by the scale's current value."""

        def scaled_loss(*piece: object) -> LossTerms:
            terms = loss(*piece)
            return terms._replace(total=terms.total * self.value)

        return scaled_loss if self.adapts else loss

    def unscale(self, parameters: Iterable[Tensor]) -> None:
        """Divide the gradients by the scale; overflowed ones stay infinite or NaN."""
        if self.value != 1:
            amp.scale_gradients_(parameters, 1.0 / self.value)

    def update(self, finite: bool) -> None:
        """Adjust the scale, given whether an update's gradients were finite."""
        if not self.adapts:
            return
        self.finite_updates = self.finite_updates + 1 if finite else 0
        if not finite:
            before, self.value = self.value, max(self.value * BACKOFF, LIMITS[0])
            log.info("loss scale %g -> %g", before, self.value)
        elif self.finite_updates == GROWTH_INTERVAL:
            self.value, self.finite_updates = min(self.value * GROWTH, LIMITS[1]), 0


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
        self._average = (multi_tensor if together else optim).ema_update_
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
