"""Save the complete state of a run as a checkpoint, and restore it.

`utils/state/progress.py` describes the contents of a checkpoint beyond weights.
"""

import logging
from collections.abc import Iterator

from duet import backend
from duet.backend import nn
from duet.backend.processes import this_process
from duet.models.detector import Detector
from duet.models.stored import stored_spec
from duet.models.training.step import TrainState, settle
from duet.utils.cli.run_config import as_document
from duet.utils.cli.train_config import run_settings
from duet.utils.errors import UserError
from duet.utils.files.json_files import Document
from duet.utils.state.run import Run
from duet.utils.text import count
from duet.utils.weights.checkpoint import Checkpoint, Header

log = logging.getLogger("train")


def capture(run: Run, state: TrainState, is_best: bool = False) -> Checkpoint:
    """Capture everything that the rest of the run depends on, between two batches.

    is_best: whether these are the best weights so far.
    """
    settle(state)
    job = run.job
    header = Header(
        model=state.model.spec.document,
        class_names=job.data.class_names,
        epoch=state.epoch,
        batch_number=state.batch_number,
        last_update=state.last_update,
        ema_updates=state.ema.updates,
        best_fitness=state.best_fitness,
        hyperparameters=as_document(job.hyp),
        settings=run_settings(job.config),
        backend=backend.use(),
        loss_scale=state.loss_scale.value,
        progress={
            "is_best": is_best,
            "best_epoch": state.best_epoch,
            "finite_updates": state.loss_scale.finite_updates,
            "scores_before_epoch": {str(at): list(x) for at, x in state.class_scores.items()},
            "loss_names": list(state.watch.loss_names),
            "watch": state.watch.state(),
            "seconds": state.timer.state(),
            "work": run.work.state(),
            "columns": run.results.columns,
            "results": run.results.rows,
            "data": dict(job.data.digests),
            "world_size": this_process().world_size,
        },
    )
    return Checkpoint(
        header,
        model=nn.state_arrays(state.model),
        ema=nn.state_arrays(state.ema.model),
        optimizer=state.optimizer.state_arrays(),
    )


def restore(run: Run, state: TrainState, checkpoint: Checkpoint) -> None:
    """Restore a newly built run to a captured state.

    Raises:
        UserError: losses or arrays belong to a different model or optimizer.
    """
    header = checkpoint.header
    try:
        _restore_progress(run, state, header.progress)
        nn.load_state_arrays(state.model, checkpoint.model)
        nn.load_state_arrays(state.ema.model, checkpoint.ema)
        state.optimizer.load_state_arrays(checkpoint.optimizer)
    except ValueError as error:
        raise UserError(f"--resume: the state does not match the model: {error}") from error
    state.epoch, state.batch_number = header.epoch, header.batch_number
    state.last_update, state.ema.updates = header.last_update, header.ema_updates
    state.best_fitness = header.best_fitness
    # Keep the initial scale if the run did not use float16 before (--amp auto).
    if state.loss_scale.adapts and header.loss_scale != 1:
        state.loss_scale.value = header.loss_scale
    log.info(
        "resumed after %s, in epoch %d of %d%s",
        count(state.batch_number, "batch", "batches"),
        min(state.epoch + 1, state.schedule.epochs),
        state.schedule.epochs,
        "".join(f"; {text}" for text in differences(header, run.job.config.sync_bn)),
    )


def _restore_progress(run: Run, state: TrainState, progress: Document) -> None:
    names = progress["loss_names"]
    if names != list(state.watch.loss_names):
        raise ValueError(f"the state has the losses {', '.join(names)}")
    state.class_scores = {int(at): tuple(x) for at, x in progress["scores_before_epoch"].items()}
    state.watch.restore(progress["watch"])
    state.best_epoch = progress["best_epoch"]
    state.loss_scale.finite_updates = progress["finite_updates"]
    state.seconds_before = progress["seconds"]  # the timer is created when training starts
    run.work.restore(progress["work"])
    run.results.columns, run.results.rows = progress["columns"], progress["results"]


def differences(header: Header, sync_bn: bool) -> Iterator[str]:
    """Yield reasons why the rest of the run may differ from an uninterrupted run."""
    writer, present = header.backend, backend.use()
    if writer != present:
        yield f"the state was saved by {writer}; {present} rounds differently"
    before, now = header.progress["world_size"], this_process().world_size
    if before != now:
        effect = "sums round differently" if sync_bn else "without --sync-bn BatchNorm differs"
        yield f"{count(before, 'process', 'processes')} before, {now} now: {effect}"


def rebuild_model(checkpoint: Checkpoint) -> Detector:
    """Build the model of a state; `restore` loads its weights."""
    try:
        return Detector(stored_spec(checkpoint.header.model, checkpoint.model))
    except ValueError as error:
        raise UserError(f"--resume: the model cannot be built: {error}") from error
