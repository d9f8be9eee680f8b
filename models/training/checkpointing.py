"""The whole state of a run as a checkpoint, and a run put back into it.

`capture` and `restore` go through the same parts, `VALUES` and `ARRAYS`, each of which says how it
is taken and put back; `utils/state/progress.py` has their kinds. Before: `train.py`, between two
batches. After: `utils/state/files.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import backend
from backend import dist, nn, ops
from backend.processes import this_process
from backend.words import count
from models.detector import Detector
from models.evaluation import nothing_done
from models.stored import stored_spec
from models.training.loss_scale import NO_SCALE, LossScale
from models.training.pieces import put_gradients
from models.training.settling import settle
from models.training.state import TrainState
from models.training.step_watch import StepWatch
from utils.cli.document import as_document, run_settings
from utils.errors import UserError
from utils.evaluation.progress import read_progress
from utils.state.checkpoint import KINDS, Arrays, Checkpoint, Header
from utils.state.run import Run
from utils.state.work_record import WorkRecord

log = logging.getLogger("train")


class Part(NamedTuple):
    """A piece of the state.

    Attributes:
        name: in the file: of a field of the header or of its progress, or of a section of arrays.
        owner: the object that has it: "state.ema" is `ema` of the `TrainState`.
        take: returns it, given the owner, between two batches.
        put: gives it to the owner of a run that was just built; ValueError if it does not fit.
    """

    name: str
    owner: str
    take: Callable[[Any], Any]
    put: Callable[[Any, Any], None]


def plain(name: str, owner: str, attribute: str = "") -> Part:
    """Return the part that is an attribute of its owner, by default of the part's name."""
    attribute = attribute or name
    return Part(name, owner, attrgetter(attribute), lambda x, value: setattr(x, attribute, value))


def capture(run: Run, state: TrainState, is_best: bool = False) -> Checkpoint:
    """Take everything that the rest of the run depends on, between two batches.

    is_best: whether it holds the best weights so far.
    """
    settle(state)
    values, arrays = _take(VALUES, run, state), _take(ARRAYS, run, state)
    of_header = {name: values.pop(name) for name in KINDS if name in values}
    header = Header(
        model=state.model.spec.document,
        class_names=run.class_names,
        hyperparameters=as_document(run.hyp),
        settings=run_settings(run.config),
        backend=backend.use(),
        progress={
            "is_best": is_best,
            "data": dict(run.data),
            "world_size": this_process().world_size,
            **values,
        },
        **of_header,
    )
    return Checkpoint(header, **arrays)


def restore(run: Run, state: TrainState, checkpoint: Checkpoint) -> None:
    """Put a run that was just built into the state that `capture` saw.

    Raises:
        UserError: a place that the run does not have; arrays of another model or optimizer.
    """
    header = checkpoint.header
    try:
        _require_place(run, state, header)
        _require_gradients(state, checkpoint)
        _require_evaluation(run, state, checkpoint)
        _put(VALUES, run, state, {**vars(header), **header.progress})
        _put(ARRAYS, run, state, vars(checkpoint))
    except ValueError as error:
        raise UserError(f"--resume: the state does not fit this model: {error}") from error
    log.info(
        "resumed after %s, in epoch %d of %d%s",
        count(state.batch_number, "batch", "batches"),
        min(state.epoch + 1, run.config.epochs),
        run.config.epochs,
        "".join(f"; {difference}" for difference in differences(header, run.config.sync_bn)),
    )


def _take(parts: Iterable[Part], run: Run, state: TrainState) -> dict[str, Any]:
    whole = SimpleNamespace(run=run, state=state)
    return {part.name: part.take(attrgetter(part.owner)(whole)) for part in parts}


def _put(parts: Iterable[Part], run: Run, state: TrainState, values: Mapping[str, Any]) -> None:
    whole = SimpleNamespace(run=run, state=state)
    for part in parts:
        part.put(attrgetter(part.owner)(whole), values[part.name])


def differences(header: Header, sync_bn: bool) -> Iterator[str]:
    """Yield why the rest of the run may differ from that of a run that was not interrupted."""
    writer, present = header.backend, backend.use()
    if writer != present:
        yield f"{writer} saved the state, {present} rounds differently"
    before, now = header.progress["world_size"], this_process().world_size
    if before != now:
        effect = "sums round differently" if sync_bn else "without --sync-bn BatchNorm differs"
        yield f"it ran as {count(before, 'process', 'processes')}, now as {now}: {effect}"


def _require_place(run: Run, state: TrainState, header: Header) -> None:
    done = header.batch_number - header.epoch * state.schedule.batches_per_epoch
    if not (
        0 <= header.epoch <= run.config.epochs
        and 0 <= done <= state.schedule.batches_per_epoch
        and header.last_update < max(header.batch_number, 1)
    ):
        raise ValueError(
            f"it has {count(header.batch_number, 'batch', 'batches')}, "
            f"{count(header.epoch, 'epoch')} and its last update at batch {header.last_update}"
        )


def _require_gradients(state: TrainState, checkpoint: Checkpoint) -> None:
    """Raise ValueError unless those pending are of trained parameters, the same on all ranks."""
    shapes = {n: tuple(x.shape) for n, x in nn.named_parameters(state.model) if x.requires_grad}
    found = {name.partition("/")[2] for name in checkpoint.gradients}
    ranks = checkpoint.header.progress["world_size"]
    if len(checkpoint.gradients) == ranks * len(found):
        wanted = {f"{rank}/{name}": shapes.get(name) for name in found for rank in range(ranks)}
        if wanted == {name: array.shape for name, array in checkpoint.gradients.items()}:
            return
    raise ValueError("it has gradients of other parameters or ranks")


def _require_evaluation(run: Run, state: TrainState, checkpoint: Checkpoint) -> None:
    if checkpoint.evaluation:
        nothing = nothing_done(state.model.head)
        read_progress(checkpoint.evaluation, nothing, run.data["val"]["images"])


def rebuild_model(checkpoint: Checkpoint) -> Detector:
    """Build the model of a state; `restore` gives it its weights."""
    try:
        return Detector(stored_spec(checkpoint.header.model, checkpoint.model))
    except ValueError as error:
        raise UserError(f"--resume: the model cannot be built here: {error}") from error


def pending_gradients(state: TrainState) -> dict[str, np.ndarray]:
    """Return the gradients since the last update, by rank/parameter; none just after one.

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
    """Give each trained parameter the gradient of its rank, none where none was pending.

    On another number of ranks, each takes the mean over those that were: what counts is the mean.
    """
    by_rank: dict[int, dict[str, np.ndarray]] = {}
    for name, array in stored.items():
        rank, _, parameter = name.partition("/")
        by_rank.setdefault(int(rank), {})[parameter] = array
    place = this_process()
    own = by_rank[place.rank] if len(by_rank) == place.world_size else _mean(by_rank)
    put_gradients(state, own)


def _mean(by_rank: Mapping[int, Arrays]) -> dict[str, np.ndarray]:
    ranks = list(by_rank.values())
    means = {}
    with np.errstate(invalid="ignore"):  # infinities, which the next update finds
        for name, first in (ranks[0] if ranks else {}).items():
            mean = np.mean([arrays[name] for arrays in ranks], axis=0, dtype=np.float64)
            means[name] = mean.astype(first.dtype)
    return means


def _put_loss_scale(scale: LossScale, value: float) -> None:
    if scale.adapts and value != NO_SCALE:  # else the run was not in float16, as --amp auto may be
        scale.value = value


def _require_loss_names(watch: StepWatch, names: list[str]) -> None:
    if names != list(watch.loss_names):
        raise ValueError(f"its losses are {', '.join(names)}")


def _take_micro_batches(state: TrainState) -> list[int]:
    """Return that of each rank."""
    own = np.array([state.micro_batch], np.int64)
    return [int(size) for size in np.concatenate(dist.all_gather(own))]


def _put_micro_batches(state: TrainState, sizes: list[int]) -> None:
    """Take that of this rank, or the smallest on another number of ranks; or --micro-batch, where
    that is smaller.
    """
    place = this_process()
    found = [sizes[place.rank]] if len(sizes) == place.world_size else sizes
    state.micro_batch = min([x for x in (*found, state.micro_batch) if x > 0], default=0)


def _put_class_scores(state: TrainState, scores: list[float]) -> None:
    if len(scores) not in (0, state.model.head.num_classes):
        raise ValueError(f"it has scores of {count(len(scores), 'class', 'classes')}")
    if not all(0 <= score <= 1 for score in scores):
        raise ValueError("it has scores of classes outside 0 to 1")
    state.class_scores = tuple(scores)


def _put_seconds(state: TrainState, seconds: Mapping[str, float]) -> None:
    state.seconds_before = seconds  # the timer is made when training starts


def _put_gradients(state: TrainState, arrays: Arrays) -> None:
    if state.batch_number:  # there are none before the first batch
        restore_gradients(state, arrays)


def _take_evaluation(state: TrainState) -> Arrays:
    return state.evaluation.arrays() if state.evaluation else {}


def _put_evaluation(state: TrainState, arrays: Arrays) -> None:
    if arrays:
        state.evaluation = nothing_done(state.model.head).of_arrays(arrays)


VALUES = (
    plain("epoch", "state"),
    plain("batch_number", "state"),
    plain("last_update", "state"),
    plain("best_fitness", "state"),
    Part("micro_batches", "state", _take_micro_batches, _put_micro_batches),
    plain("best_epoch", "state"),
    Part("class_scores", "state", lambda state: list(state.class_scores), _put_class_scores),
    plain("ema_updates", "state.ema", "updates"),
    Part("loss_scale", "state.loss_scale", attrgetter("value"), _put_loss_scale),
    plain("finite_updates", "state.loss_scale"),
    Part("loss_names", "state.watch", lambda watch: list(watch.loss_names), _require_loss_names),
    Part("watch", "state.watch", StepWatch.state, StepWatch.restore),
    Part("loss", "state.loss", lambda loss: loss.state(), lambda loss, seen: loss.restore(seen)),
    Part("seconds", "state", lambda state: state.timer.state(), _put_seconds),
    Part("work", "run.work", WorkRecord.state, WorkRecord.restore),
    plain("columns", "run.results"),
    plain("results", "run.results", "rows"),
)
ARRAYS = (
    Part("model", "state.model", nn.state_arrays, nn.load_state_arrays),
    Part("ema", "state.ema.model", nn.state_arrays, nn.load_state_arrays),
    Part(
        "optimizer",
        "state.optimizer",
        lambda optimizer: optimizer.state_arrays(),
        lambda optimizer, arrays: optimizer.load_state_arrays(arrays),
    ),
    Part("gradients", "state", pending_gradients, _put_gradients),
    Part("evaluation", "state", _take_evaluation, _put_evaluation),
)
