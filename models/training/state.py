"""What a training step reads and changes, built from flags and a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duet.backend.contract import Optimizer, Tensor
from duet.models.detector import Detector
from duet.models.heads.base import Loss, LossTerms
from duet.models.training.ema import ModelEMA
from duet.models.training.execution import Execution
from duet.models.training.multi_scale import MultiScale
from duet.models.training.schedule import Schedule
from duet.models.training.step_watch import LossScale, StepWatch
from duet.utils.report.console import EpochTable
from duet.utils.report.stage_timer import StageTimer

GRADIENT_NORM_LIMIT = 10.0

log = logging.getLogger("train")


@dataclass
class TrainState:
    """What a training step reads and changes."""

    model: Detector
    ema: ModelEMA
    loss: Loss
    optimizer: Optimizer
    schedule: Schedule
    device: str
    dtype: str  # of weights and images
    execution: Execution
    parallel: Any  # the model as several ranks train it together
    forward: Callable[[Tensor], Sequence[Tensor]]  # that, and
    step_loss: Callable[..., LossTerms]  # the loss, as a step runs them
    loss_scale: LossScale
    means: Mapping[str, Any]  # that were chosen, for work.json
    watch: StepWatch
    table: EpochTable  # of the epochs, on screen
    seed: int = 0  # of the run
    multi_scale: MultiScale | None = None  # None: batches keep their size
    timer: StageTimer = field(default_factory=StageTimer)  # of the epoch
    seconds_before: Mapping[str, float] | None = None  # that it took before a resumption
    batch_number: int = 0  # batches since the start of training
    last_update: int = -1  # number of the batch of the last optimizer step
    micro_batch: int = 0  # images that this rank computes at a time; 0: all of a batch
    epoch: int = 0  # finished epochs
    best_fitness: float = -1.0
    best_epoch: int = 0  # finished epochs at the last one of which none before was better
    # With --image-weights: (C,) of the validation before an epoch, from that of the last update on.
    class_scores: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    learnt: Mapping[str, Any] = field(default_factory=dict)  # what the loss had at the last update


def settle(state: TrainState) -> None:
    """Read whether the last update happened, unless that is known, and take it back if not.

    Raises:
        UserError: too many updates in a row were skipped; see `StepWatch.settle`.
    """
    happened = state.watch.settle(state.loss_scale.can_fall)
    if happened is None:
        return
    state.loss_scale.update(happened)
    if not happened:
        state.optimizer.uncount_step()
        state.ema.uncount_update()
