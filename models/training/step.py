"""One training step: a batch becomes losses, gradients and, once enough are added up, an update.

Before: a `Batch` of `utils/data/loading/loader.py`. After: `loop.py`, batch by batch.
"""

from __future__ import annotations

from backend import autograd, nn
from models.heads.base import LossTerms
from models.training.pieces import add_gradients
from models.training.schedule import StepSettings
from models.training.settling import settle
from models.training.state import TrainState
from models.training.step_watch import BatchName
from utils.data.loading.batch import Batch
from utils.report.stage_timer import StageTimer

GRADIENT_NORM_LIMIT = 10.0


def train_step(state: TrainState, batch: Batch, stage: StageTimer) -> LossTerms:
    """Run forward and backward pass of one batch and, once enough are accumulated, one update."""
    settings = state.schedule.at(state.batch_number)
    is_last = state.batch_number - state.last_update >= settings.accumulate
    terms = add_gradients(state, batch, is_last, stage)
    state.loss.end_batch()
    state.watch.add(name_batch(state, batch), terms)
    if is_last:
        update_weights(state, settings, stage)
        state.last_update = state.batch_number
    state.batch_number += 1
    return terms


def update_weights(state: TrainState, settings: StepSettings, stage: StageTimer) -> None:
    """Step the optimizer and the EMA once; neither if a number is not finite.

    The device decides that, and `settle` reads it later. Until then the step counts.
    """
    settle(state)
    with stage("optimizer"):
        parameters = [parameter for _, parameter in nn.named_parameters(state.model)]
        state.loss_scale.unscale(parameters)
        norm = autograd.clip_gradients(parameters, GRADIENT_NORM_LIMIT)
        lost = state.watch.close_update(norm)
        rates = (settings.bias_rate, settings.weight_rate, settings.weight_rate)
        state.optimizer.step(rates, settings.momentum, lost)
        state.optimizer.zero_grad()
    with stage("ema"):
        state.ema.update(state.model, lost)


def name_batch(state: TrainState, batch: Batch) -> BatchName:
    """Return what --replay needs to make the batch of this step again."""
    step = state.batch_number - state.epoch * state.schedule.batches_per_epoch + 1
    return BatchName(state.epoch + 1, step, batch.global_indices)
