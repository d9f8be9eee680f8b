"""State that a training step reads and updates."""

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
from duet.models.training.optimizer import Schedule
from duet.models.training.step_watch import LossScale, StepWatch
from duet.utils.report.console import EpochTable
from duet.utils.report.stage_timer import StageTimer

GRADIENT_NORM_LIMIT = 10.0

log = logging.getLogger("train")


@dataclass
class TrainState:
    """State that a training step reads and updates."""

    model: Detector
    ema: ModelEMA
    loss: Loss
    optimizer: Optimizer
    schedule: Schedule
    device: str
    dtype: str  # dtype of weights and images
    execution: Execution
    parallel: Any  # the model wrapped for training on several ranks
    forward: Callable[[Tensor], Sequence[Tensor]]  # its forward pass, possibly compiled
    step_loss: Callable[..., LossTerms]  # the loss, possibly compiled and scaled
    loss_scale: LossScale
    implementations: Mapping[str, str | bool]  # in use, for work.json
    watch: StepWatch
    table: EpochTable  # rows of epochs on screen
    seed: int = 0
    multi_scale: MultiScale | None = None  # None: fixed size
    fixed_shapes: bool = False  # whether all full batches have the same shape
    timer: StageTimer = field(default_factory=StageTimer)  # for the current epoch
    seconds_before: Mapping[str, float] | None = None  # the epoch's times before resuming
    batch_number: int = 0  # batches since the start of training
    last_update: int = -1  # batch number of the last optimizer step
    micro_batch: int = 0  # images per pass on this rank; 0: the whole batch
    epoch: int = 0  # finished epochs
    best_fitness: float = -1.0
    best_epoch: int = 0  # number of the best epoch, from 1; the latest if several are equal
    # For --image-weights: class scores (C,) before each epoch, since that of the last update.
    class_scores: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


def settle(state: TrainState) -> None:
    """Read whether the last update happened, unless already known, and undo its count if not.

    Raises:
        UserError: too many updates in a row were skipped; see `StepWatch.settle`.
    """
    happened = state.watch.settle(state.loss_scale.can_fall)
    if happened is None:
        return
    state.loss_scale.update(happened)
    if not happened:
        state.optimizer.uncount_step()
        state.ema.updates -= 1
