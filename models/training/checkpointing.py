"""The whole state of a run as a checkpoint, and a run put back into it.

`capture` and `restore` mirror each other: what one writes, the other reads. Before: `train.py`,
between two batches. After: `utils/state/files.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import backend
from backend import autograd, dist, nn, ops
from backend.processes import processes
from models.detector import Detector
from models.graph import parse_model
from models.training.state import TrainState
from utils.cli.document import as_document, run_settings
from utils.errors import UserError
from utils.evaluation.progress import read_progress
from utils.state.checkpoint import Arrays, Checkpoint, Header
from utils.state.run import Run

log = logging.getLogger("train")


def capture(run: Run, state: TrainState, is_best: bool = False) -> Checkpoint:
    """Everything that the rest of the run depends on, between two batches.

    is_best: whether it holds the best weights so far.
    """
    header = Header(
        model=state.model.spec.document,
        class_names=run.class_names,
        epoch=state.epoch,
        batch_number=state.batch_number,
        last_update=state.last_update,
        ema_updates=state.ema.updates,
        best_fitness=state.best_fitness,
        hyperparameters=as_document(run.hyp),
        settings=run_settings(run.config),
        backend=backend.use(),
        loss_scale=state.loss_scale.value,
        progress={
            "is_best": is_best,
            "finite_updates": state.loss_scale.finite_updates,
            "watch": state.watch.state(),
            "seconds": state.timer.state(),
            "work": run.work.state(),
            "results": run.results.rows,
            "data": dict(run.data),
            "world_size": processes().world_size,
        },
    )
    return Checkpoint(
        header,
        model=nn.state_arrays(state.model),
        ema=nn.state_arrays(state.ema.model),
        optimizer=state.optimizer.state_arrays(),
        gradients=pending_gradients(state),
        evaluation=state.evaluation._asdict() if state.evaluation.num_batches else {},
    )


def restore(run: Run, state: TrainState, checkpoint: Checkpoint) -> None:
    """Put a run that was just built into the state that `capture` saw.

    Raises:
        UserError: a place that the run does not have; arrays of another model or optimizer.
    """
    header, progress = checkpoint.header, checkpoint.header.progress
    try:
        nn.load_state_arrays(state.model, checkpoint.model)
        nn.load_state_arrays(state.ema.model, checkpoint.ema)
        state.optimizer.load_state_arrays(checkpoint.optimizer)
        _require_place(run, state, header)
        _require_gradients(state, checkpoint)
        if checkpoint.evaluation:
            images = run.data["val"]["images"]
            state.evaluation = read_progress(checkpoint.evaluation, images)
    except ValueError as error:
        raise UserError(f"--resume: the state does not fit this model: {error}") from error
    state.epoch, state.batch_number = header.epoch, header.batch_number
    state.last_update, state.best_fitness = header.last_update, header.best_fitness
    state.ema.updates = header.ema_updates
    if state.loss_scale.adapts:
        state.loss_scale.value = header.loss_scale
        state.loss_scale.finite_updates = progress["finite_updates"]
    state.watch.restore(progress["watch"])
    state.seconds_before = progress["seconds"]
    run.work.restore(progress["work"])
    run.results.rows = progress["results"]
    if state.batch_number:
        restore_gradients(state, checkpoint.gradients)
    log.info(
        "resumed after %d batches, in epoch %d of %d%s",
        state.batch_number,
        min(state.epoch + 1, run.config.epochs),
        run.config.epochs,
        "".join(f"; {difference}" for difference in differences(header, run.config.sync_bn)),
    )


def differences(header: Header, sync_bn: bool) -> Iterator[str]:
    """Why what follows may differ from what would have followed where the state was written."""
    writer, present = header.backend, backend.use()
    if writer != present:
        yield f"{writer} wrote the state, {present} rounds otherwise"
    before, now = header.progress["world_size"], processes().world_size
    if before != now:
        effect = "sums round otherwise" if sync_bn else "without --sync-bn BatchNorm differs"
        yield f"it ran as {before} process{'es' * (before > 1)}, now as {now}: {effect}"


def _require_place(run: Run, state: TrainState, header: Header) -> None:
    done = header.batch_number - header.epoch * state.schedule.batches_per_epoch
    if not (
        0 <= header.epoch <= run.config.epochs
        and 0 <= done <= state.schedule.batches_per_epoch
        and header.last_update < max(header.batch_number, 1)
    ):
        raise ValueError(
            f"{header.batch_number} batches, {header.epoch} epochs, last update "
            f"{header.last_update}"
        )


def _require_gradients(state: TrainState, checkpoint: Checkpoint) -> None:
    """ValueError unless those pending are of trained parameters, the same on all ranks."""
    shapes = {n: tuple(x.shape) for n, x in nn.named_parameters(state.model) if x.requires_grad}
    found = {name.partition("/")[2] for name in checkpoint.gradients}
    ranks = checkpoint.header.progress["world_size"]
    if len(checkpoint.gradients) == ranks * len(found):
        wanted = {f"{rank}/{name}": shapes.get(name) for name in found for rank in range(ranks)}
        if wanted == {name: array.shape for name, array in checkpoint.gradients.items()}:
            return
    raise ValueError("gradients of other parameters or ranks")


def rebuild_model(document: Mapping[str, Any]) -> Detector:
    """The model of a state, whose weights `restore` gives it."""
    try:
        return Detector(parse_model(document))
    except ValueError as error:
        raise UserError(f"--resume: the model cannot be built here: {error}") from error


def pending_gradients(state: TrainState) -> dict[str, np.ndarray]:
    """Those accumulated since the last update, by rank and parameter; none just after one.

    All ranks call it: each has gradients of its own until the update.
    """
    if state.batch_number - 1 == state.last_update:
        return {}
    own = {
        name: ops.to_numpy(gradient)
        for name, x in nn.named_parameters(state.model)
        if (gradient := x.grad) is not None
    }
    ends = np.cumsum([array.size for array in own.values()])[:-1]
    joined = np.concatenate([array.reshape(-1) for array in own.values()])
    found = {}
    for rank, numbers in enumerate(dist.all_gather(joined)):
        for (name, array), part in zip(own.items(), np.split(numbers, ends), strict=True):
            found[f"{rank}/{name}"] = part.reshape(array.shape)
    return found


def restore_gradients(state: TrainState, stored: Arrays) -> None:
    """Give each trained parameter the gradient of its rank, zero where none was pending.

    On another number of ranks, each takes the mean over those that were: what counts is the mean.
    """
    by_rank: dict[int, dict[str, np.ndarray]] = {}
    for name, array in stored.items():
        rank, _, parameter = name.partition("/")
        by_rank.setdefault(int(rank), {})[parameter] = array
    place = processes()
    own = by_rank[place.rank] if len(by_rank) == place.world_size else _mean(by_rank)
    parameters = {name: x for name, x in nn.named_parameters(state.model) if x.requires_grad}
    autograd.set_gradients(parameters, own)


def _mean(by_rank: Mapping[int, Arrays]) -> dict[str, np.ndarray]:
    ranks = list(by_rank.values())
    means = {}
    with np.errstate(invalid="ignore"):  # infinities, which the next update finds
        for name, first in (ranks[0] if ranks else {}).items():
            mean = np.mean([arrays[name] for arrays in ranks], axis=0, dtype=np.float64)
            means[name] = mean.astype(first.dtype)
    return means
