"""The training step: compute a batch's gradients and, once enough have accumulated, update.

With --micro-batch, a batch is computed in pieces whose gradients add up to the batch's
(`heads/base.py::WholeBatch`); only BatchNorm uses each piece's own statistics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

import numpy as np

from duet import backend
from duet.backend import autograd, dist, nn
from duet.backend.contract import Optimizer, Stage, Tensor
from duet.backend.processes import this_process
from duet.models.detector import Detector, images_to_tensor
from duet.models.heads.base import Loss, LossTerms, PassImages, WholeBatch
from duet.models.training.execution import Execution
from duet.models.training.finishing import finish_images
from duet.models.training.multi_scale import MultiScale
from duet.models.training.optimizer import LossScale, ModelEMA, Schedule, StepSettings
from duet.models.training.step_watch import BatchName, StageTimer, StepWatch
from duet.utils.data.loading.batch import Batch, Targets
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.processes import watchdog
from duet.utils.report.console import EpochTable

GRADIENT_NORM_LIMIT = 10.0


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
    parallel: nn.Module  # the model wrapped for training on several ranks
    parameters: Sequence[Tensor]  # the model's, which take longer to find than to clip
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


def train_step(state: TrainState, batch: Batch, stage: Stage) -> LossTerms:
    """Run one batch's forward and backward pass and, once enough have accumulated, an update."""
    settings = state.schedule.at(state.batch_number)
    ends_update = state.batch_number - state.last_update >= settings.accumulate
    with backend.device.shapes_repeat(state.device, state.fixed_shapes):
        terms = add_gradients(state, batch, ends_update, stage)
    if ends_update:
        update_weights(state, settings, stage)
        state.last_update = state.batch_number
    state.batch_number += 1
    return terms


def add_gradients(state: TrainState, batch: Batch, ends_update: bool, stage: Stage) -> LossTerms:
    """Accumulate a batch's gradients and return its terms.

    ends_update: whether gradients are averaged over the ranks after this batch.
    """
    found = []
    whole = WholeBatch(len(batch.images), batch.targets)
    for piece in batch.pieces(state.micro_batch):
        with stage("to_device"):
            images = network_images(state, piece)
        num_images = len(piece.images)
        places = this_process().shard(np.arange(len(batch.global_indices)))
        shown = places[whole.done : whole.done + num_images]
        drawn = PassImages(state.seed, state.batch_number, len(batch.global_indices), shown)
        state.model.head.draw(drawn)
        is_last = ends_update and whole.done + num_images == whole.num_images
        loss = partial(_loss_of_piece, state, whole)
        with dist.averaging(state.parallel, is_last, stage):
            found.append(
                autograd.value_and_backward(state.forward, loss, images, piece.targets, stage)
            )
        whole.done += num_images
    terms = reduce(_plus, found)
    epoch, index = divmod(state.batch_number, state.schedule.batches_per_epoch)
    state.watch.add(BatchName(epoch + 1, index + 1, batch.global_indices), terms)
    return terms


def update_weights(state: TrainState, settings: StepSettings, stage: Stage) -> None:
    """Update the weights and the EMA, unless a loss or gradient is not finite.

    The device decides that, and `settle` reads it later. Until then the step is counted.
    """
    settle(state)
    with stage("optimizer"):
        state.loss_scale.unscale(state.parameters)
        norm = autograd.clip_gradients(state.parameters, GRADIENT_NORM_LIMIT)
        lost = state.watch.close_update(norm)
        rates = (settings.bias_rate, settings.weight_rate, settings.weight_rate)
        state.optimizer.step(rates, settings.momentum, lost)
        state.optimizer.zero_grad()
    with stage("ema"):
        state.ema.update(state.model, lost)


def accumulate_again(state: TrainState, loader: TrainLoader) -> None:
    """Recompute the gradients that a suspended run had accumulated since its last update.

    Weights have not changed since that update, so the gradients are identical, bit for bit. Other
    effects of the batches, BatchNorm statistics and counted losses, are in the state already.
    """
    if state.batch_number - 1 == state.last_update:
        return
    counted, arrays = state.watch.state(), nn.state_arrays(state.model)
    end, state.batch_number = state.batch_number, state.last_update + 1
    while state.batch_number < end:
        epoch, index = divmod(state.batch_number, len(loader))
        batch = loader.batch(epoch, index, state.class_scores.get(epoch, ()))
        add_gradients(state, batch, False, state.timer)
        state.batch_number += 1
        watchdog.progress()
    state.watch.restore(counted)
    nn.load_state_arrays(state.model, arrays)


def _loss_of_piece(
    state: TrainState, whole: WholeBatch, raw: Sequence[Tensor], targets: Targets
) -> LossTerms:
    if state.loss_scale.adapts:  # the scale depends on the last update
        settle(state)
    return state.step_loss(raw, targets, whole)


def _plus(left: LossTerms, right: LossTerms) -> LossTerms:
    by_name = {name: x.detach() + right.by_name[name].detach() for name, x in left.by_name.items()}
    return LossTerms(by_name, left.total.detach() + right.total.detach())


def network_images(state: TrainState, batch: Batch) -> Tensor:
    """Convert the images of the current batch or piece to network input."""
    layout = state.execution.channels_last
    if batch.finishing is None:
        images = images_to_tensor(batch.images, state.device, state.dtype, layout)
    else:
        finishing = batch.finishing, state.device, state.dtype, layout
        images = finish_images(batch.images, *finishing)
    if state.multi_scale is None:
        return images
    return state.multi_scale.resize(images, state.batch_number)
