"""A batch becomes gradients: at once or, if memory does not suffice, piece by piece.

Before: `step.py::train_step`. After: `autograd.value_and_backward`, once per piece. The gradients
of the pieces add up to those of the batch (`heads/base.py::WholeBatch`), so that the recipe sees
the batch that it was given. Only BatchNorm normalizes each piece with its own statistics.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial, reduce
from typing import Any

import numpy as np

from backend import autograd, device, dist, nn, ops
from backend.contract import Stage, Tensor
from backend.processes import this_process
from backend.words import count
from models.detector import images_to_tensor
from models.heads.base import LossTerms, PassImages, WholeBatch
from models.training.settling import settle
from models.training.state import TrainState
from utils.data.loading.batch import Batch, Targets
from utils.errors import UserError

log = logging.getLogger("train")


def add_gradients(state: TrainState, batch: Batch, is_last: bool, stage: Stage) -> LossTerms:
    """Add a batch's gradients to those pending and return its terms.

    Where memory runs out, it begins anew with half as many images at a time, and keeps to that for
    the rest of the run.

    Args:
        is_last: of the batches of an update, after which gradients are averaged over the ranks.

    Raises:
        UserError: memory does not suffice for one image; several processes in the middle of an
            exchange, which cannot be taken back.
    """
    has_pending = state.batch_number - 1 > state.last_update
    pending = autograd.copy_gradients(trained_parameters(state)) if has_pending else {}
    whole = WholeBatch(len(batch.images), batch.targets)
    while True:
        exchange = Exchange(stage, has_begun=state.sync_bn)
        try:
            return _piece_by_piece(state, batch, whole, is_last, exchange)
        except Exception as error:
            if not device.is_out_of_memory(error):
                raise
            halve(state, batch, exchange)
        # Behind the except block: until there, the error kept the tensors of the failed pass alive.
        stored = {name: ops.to_numpy(x) for name, x in pending.items()}
        put_gradients(state, stored)


def put_gradients(state: TrainState, arrays: Mapping[str, np.ndarray]) -> None:
    """Set the gradients of trained parameters; others are as `Optimizer.zero_grad` leaves them."""
    parameters = trained_parameters(state)
    autograd.set_gradients(parameters, {})
    state.optimizer.zero_grad()
    autograd.set_gradients({name: parameters[name] for name in arrays}, arrays)


def trained_parameters(state: TrainState) -> dict[str, Tensor]:
    """Return those that get gradients, by name."""
    return {name: x for name, x in nn.named_parameters(state.model) if x.requires_grad}


class Exchange:
    """Enters the stages of a pass; knows whether ranks have begun to exchange numbers in it.

    Attributes:
        is_due: whether the next backward pass exchanges gradients.
    """

    def __init__(self, stage: Stage, has_begun: bool) -> None:
        self._stage = stage
        self.is_due, self.has_begun = False, has_begun

    def __call__(self, name: str) -> AbstractContextManager[None]:
        # Behind the forward pass PyTorch's ranks are about to exchange in the next backward pass.
        self.has_begun = self.has_begun or (self.is_due and name in ("loss", "backward"))
        return self._stage(name)


def _piece_by_piece(
    state: TrainState, batch: Batch, whole: WholeBatch, is_last: bool, stage: Exchange
) -> LossTerms:
    found = []
    whole.done = 0
    for piece in pieces_of(batch, state.micro_batch):
        with stage("to_device"):
            images = network_images(state, piece)
        num_images = len(piece.images)
        state.model.head.draw(pass_images(state, batch, whole.done, num_images))
        stage.is_due = is_last and whole.done + num_images == whole.num_images
        loss = partial(_loss_of_piece, state, whole)
        with dist.averaging(state.parallel, stage.is_due, stage):
            found.append(
                autograd.value_and_backward(state.forward, loss, images, piece.targets, stage)
            )
        whole.done += num_images
    return reduce(_plus, found)


def pass_images(state: TrainState, batch: Batch, first: int, number: int) -> PassImages:
    """Return which images of the batch over all ranks these of this rank's part are."""
    batch_size = len(batch.global_indices)
    mine = this_process().shard(np.arange(batch_size))
    places = mine[first : first + number]
    return PassImages(state.seed, state.batch_number, batch_size, places)


def _loss_of_piece(state: TrainState, whole: WholeBatch, raw: Any, targets: Targets) -> LossTerms:
    if state.loss_scale.adapts:  # its value depends on the update before this forward pass
        settle(state)
    return state.step_loss(raw, targets, whole)


def _plus(left: LossTerms, right: LossTerms) -> LossTerms:
    by_name = {name: x.detach() + right.by_name[name].detach() for name, x in left.by_name.items()}
    return LossTerms(by_name, left.total.detach() + right.total.detach())


def pieces_of(batch: Batch, size: int) -> Iterator[Batch]:
    """Yield the batch in as few pieces as have at most so many images, of equal size but for one.

    size: 0 for the batch as it is.
    """
    images = len(batch.images)
    number = -(-images // size) if size else 1
    if number <= 1:
        yield batch
        return
    bounds = [images * index // number for index in range(number + 1)]
    for start, end in itertools.pairwise(bounds):
        targets = batch.targets.between(start, end)
        yield batch._replace(images=batch.images[start:end], targets=targets)


def network_images(state: TrainState, batch: Batch) -> Tensor:
    """Return the images of the batch whose turn it is, or of a piece, as the network takes them."""
    layout = state.execution.channels_last
    images = images_to_tensor(batch.images, state.device, state.dtype, layout)
    if state.multi_scale is None:
        return images
    return state.multi_scale.resize(images, state.batch_number)


def halve(state: TrainState, batch: Batch, exchange: Exchange) -> None:
    """Take half as many images at a time from now on, and say so; UserError if it cannot be."""
    images, _, height, width = batch.images.shape
    before = min(state.micro_batch or images, images)
    what = f"out of memory with {count(before, 'image')} of {width} x {height} px at a time"
    if before <= 1:
        raise UserError(f"{what}; use a smaller --img or a smaller model")
    after = -(-before // 2)
    if this_process().world_size > 1 and exchange.has_begun:
        way = (
            "without --sync-bn"
            if state.sync_bn
            else f"from the last state with --micro-batch {after}"
        )
        raise UserError(f"{what}, while processes were exchanging numbers; train on {way}")
    state.micro_batch = after
    log.warning(
        "%s: from now on %d, whose gradients add up to those of the batch; BatchNorm sees %d at a "
        "time", what, after, after,
    )  # fmt: skip
