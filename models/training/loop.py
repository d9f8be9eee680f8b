"""Epochs of training and validation, and the places between batches where a run may end.

Before: `job.py` built the run. After: `outputs.py` tells what came of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend import nn
from backend.processes import this_process
from backend.words import count
from models.evaluation import Validation, evaluate
from models.training.checkpointing import capture
from models.training.outputs import (
    PLOTTED_BATCHES,
    BestEpoch,
    plot_trained_batch,
    report_epoch,
    write_results,
)
from models.training.state import TrainState
from models.training.statistics import recompute_statistics
from models.training.step import train_step
from utils.data.loading.loader import TrainLoader, ValLoader
from utils.data.sources.labels import Sample
from utils.evaluation.progress import EvaluationSuspended
from utils.processes import watchdog
from utils.processes.suspend import Suspended
from utils.report.stage_timer import StageTimer
from utils.screen.progress import Progress
from utils.state.checkpoint import load_checkpoint
from utils.state.run import Run


def train(
    run: Run,
    state: TrainState,
    train_loader: TrainLoader,
    val_loader: ValLoader,
    val_samples: Sequence[Sample],
) -> BestEpoch | None:
    """Train and validate epoch by epoch; return the best one, None if no figure was a number.

    Raises:
        Suspended: the run was asked to stop; its state is saved.
    """
    write_results(run)
    state.timer = StageTimer(state.device, state.seconds_before)
    best = None
    with run.stop.saving_at_interrupt():
        while state.epoch < run.config.epochs:
            with watchdog.phase("training"):
                train_epoch(run, state, train_loader)
            with watchdog.phase("validation"):
                if run.config.precise_bn and state.evaluation is None:
                    recompute_statistics(state, train_loader, run.config.precise_bn)
                validation = validate(run, state, val_loader, val_samples)
            if end_epoch(run, state, validation):
                best = BestEpoch(state.epoch, validation.result)
        with watchdog.phase("validation"):
            return best or validate_best(run, state, val_loader, val_samples)


def train_epoch(run: Run, state: TrainState, loader: TrainLoader) -> None:
    """Train on the rest of the epoch in which the state is."""
    done = state.batch_number - state.epoch * len(loader)
    title = f"epoch {state.epoch + 1}/{run.config.epochs}"
    with Progress(len(loader), title, "batches", done) as progress:
        for batch in state.timer.waiting(loader.epoch(state.epoch, done)):
            if state.batch_number < PLOTTED_BATCHES:
                plot_trained_batch(run, state, batch)
            train_step(state, batch, state.timer)
            run.work.add_batch(batch)
            progress.update(state.watch.describe(state.watch.means()))
            watchdog.progress()
            between_batches(run, state)


def validate(
    run: Run, state: TrainState, loader: ValLoader, samples: Sequence[Sample]
) -> Validation:
    """Validate the EMA, or finish a validation that was suspended."""
    cause = None

    def should_stop() -> bool:
        nonlocal cause
        cause = run.stop.cause()
        return cause is not None

    try:
        with state.timer("validation"):
            state.ema.agree()
            return evaluate(
                state.ema.model,
                loader,
                samples,
                run.class_names,
                state.device,
                loss=state.loss,
                channels_last=state.execution.channels_last,
                progress=state.evaluation,
                should_stop=should_stop,
            )
    except EvaluationSuspended as stopped:
        state.evaluation = stopped.progress
        raise suspended(run, state, cause) from None


def validate_best(
    run: Run, state: TrainState, loader: ValLoader, samples: Sequence[Sample]
) -> BestEpoch | None:
    """Validate the best weights at the end of a run that found them before it was resumed.

    The EMA of the state is theirs afterwards. Returns None where a rank does not have the file.
    """
    path = run.states.best
    if loader.world.any(not path.exists()):
        return None
    checkpoint = load_checkpoint(path)
    nn.load_state_arrays(state.ema.model, checkpoint.ema)
    validation = evaluate(
        state.ema.model,
        loader,
        samples,
        run.class_names,
        state.device,
        channels_last=state.execution.channels_last,
    )
    return BestEpoch(checkpoint.header.epoch, validation.result)


def end_epoch(run: Run, state: TrainState, validation: Validation) -> bool:
    """Count the epoch, report it, and keep the state; return whether it is the best so far."""
    losses = state.watch.end_epoch()
    state.epoch += 1
    report_epoch(run, state, losses, validation)
    # Saving the state counts in the seconds of the epoch after it.
    state.timer, state.evaluation = StageTimer(state.device), None
    is_best = keep_weights(run, state, validation.result)
    write_results(run)
    return is_best


def between_batches(run: Run, state: TrainState) -> None:
    """Stop or save where asked; the one place between two training steps that does."""
    cause = run.stop.cause()
    if cause is not None:
        raise suspended(run, state, cause)
    if run.config.save_steps and state.batch_number % run.config.save_steps == 0:
        save_state(run, state)


def suspended(run: Run, state: TrainState, cause: str | None) -> Suspended:
    """Save the state of a run that was asked to stop; return what then ends it."""
    save_state(run, state)
    done = count(state.batch_number, "batch", "batches")
    if run.stop.interrupted:
        text = f"interrupted after {done}; go on with {run.line_to_go_on()}"
        return Suspended(text, by_hand=True)
    return Suspended(f"suspended after {done}: {cause}; go on with --resume {run.folder}")


def save_state(run: Run, state: TrainState, is_best: bool = False) -> None:
    """Write everything that the rest of the run depends on."""
    with watchdog.phase("saving"):
        checkpoint = capture(run, state, is_best)
        if this_process().is_main:
            run.states.save(checkpoint, is_best)


def keep_weights(run: Run, state: TrainState, result: Any) -> bool:
    """Write the state as last.safetensors and, if nothing was better, as best.safetensors.

    Returns whether nothing was better.
    """
    fitness = state.model.head.fitness(result)
    is_best = fitness > state.best_fitness
    state.best_fitness = max(state.best_fitness, fitness)
    save_state(run, state, is_best)
    return is_best
