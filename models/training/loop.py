"""Build a training and run it: epochs of training and validation, and stopping between batches."""

import logging
import math
from contextlib import closing
from functools import partial

import numpy as np

from duet import backend
from duet.backend import nn
from duet.backend.checks import CPU
from duet.backend.processes import this_process
from duet.models.evaluation.evaluate import Evaluation, Validation
from duet.models.heads.base import Result
from duet.models.inference.predictors import in_precision
from duet.models.training.checkpointing import capture, rebuild_model, restore
from duet.models.training.execution import restoring_threads
from duet.models.training.finishing import choose_finishing
from duet.models.training.outputs import (
    BestEpoch,
    Trained,
    columns_of,
    conclude_run,
    describe_run,
    plot_trained_batch,
    plotted_batches,
    trained,
    write_results,
    write_work,
)
from duet.models.training.start import build, images_at_a_time, uses_fused
from duet.models.training.step import TrainState, accumulate_again, settle, train_step
from duet.models.training.step_watch import StageTimer
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.errors import UserError, WorkerError
from duet.utils.processes import watchdog
from duet.utils.processes.suspend import Suspended
from duet.utils.processes.world import World
from duet.utils.progress import Progress, clock, held_back
from duet.utils.report.console import Costs
from duet.utils.report.results import epoch_row
from duet.utils.state.job import Job
from duet.utils.state.job import val_loader as make_val_loader
from duet.utils.state.progress import EndRule
from duet.utils.state.resume import load_state
from duet.utils.state.run import Run, begin_run
from duet.utils.text import count

log = logging.getLogger("train")


@restoring_threads()
def run_job(job: Job, train_loader: TrainLoader) -> Trained:
    config, ranks = job.config, job.session.world.process.world_size
    checkpoint = load_state(job.point.path) if job.point is not None else None
    with watchdog.phase("building the model"), held_back(log) as notes:
        model = rebuild_model(checkpoint) if checkpoint is not None else None
        state = build(job, len(train_loader), model)
        train_loader.align(state.model.stride)
        train_loader.lend_to(state.device)
        if leaves_pixels(config.device_augment, state, train_loader):
            train_loader.leave_pixels()
        if state.device == CPU:
            images, *size = train_loader.largest_shape
            shape = min(images, state.micro_batch or images), *size
            shape = state.multi_scale.largest(shape) if state.multi_scale else shape
            state.model.require_memory(shape, trains=True)
    run = begin_run(job, columns_of(state.model.head))
    describe_run(run, state)
    for note in notes:
        log.handle(note)
    if checkpoint is not None:
        restore(run, state, checkpoint)
        del checkpoint  # free its arrays
    with make_val_loader(job, state.model.stride) as loader, closing(run.loggers):
        loader.lend_to(state.device)
        run.log_start(state.epoch, resumed=state.batch_number > 0)
        try:
            best = train(run, state, train_loader, loader)
        except WorkerError:  # its message about a dead worker mentions memory too
            raise
        except Exception as error:
            if backend.device.is_out_of_memory(error):
                flags = config.batch_size, config.micro_batch, config.image_size
                raise out_of_memory(*flags, ranks) from error
            raise
        conclude_run(run, state, best)
    write_work(run, state, {"training": train_loader.cached, "validation": loader.cached})
    return trained(run, state, best)


def leaves_pixels(asked: bool | None, state: TrainState, loader: TrainLoader) -> bool:
    """Return whether the device changes colours and flips images; note it for work.json."""
    asked = uses_fused(asked, state.device)
    size, layout = loader.largest_shape[2:], state.execution.channels_last
    chosen = choose_finishing(asked, size, state.device, state.dtype, layout)
    state.implementations = {**state.implementations, "colours": "device" if chosen else "loader"}
    return chosen


def out_of_memory(batch_size: int, micro_batch: int, image_size: int, ranks: int) -> UserError:
    at_a_time = images_at_a_time(batch_size, micro_batch, ranks)
    return UserError(
        f"out of memory with {count(at_a_time, 'image')} per pass (--batch-size "
        f"{batch_size}, --micro-batch {micro_batch}) and --img {image_size}; continue with "
        f"--resume and --micro-batch {max(at_a_time // 2, 1)}, or start again with a smaller "
        "--batch-size, --img or model"
    )


def train(
    run: Run, state: TrainState, train_loader: TrainLoader, val_loader: ValLoader
) -> BestEpoch | None:
    """Train and validate all epochs; return the best one, None if every metric was NaN.

    Raises:
        Suspended: the run was asked to stop; its state has been saved.
    """
    stop, process = run.job.session.stop, val_loader.world.process
    write_results(run)
    state.timer = StageTimer(state.device, state.seconds_before)
    if process.world_size > 1 and state.device != CPU:  # whose batches may take seconds
        state.watch.carry_requests(stop.is_asked)
    with stop.saving_at_interrupt():
        best = train_epochs(run, state, train_loader, val_loader)
        with watchdog.phase("validation"):
            best = best or validate_best(run, state, val_loader)
    if run.job.config.no_save and process.is_main:
        run.states.remove_all()
    return best


def train_epochs(
    run: Run, state: TrainState, train_loader: TrainLoader, val_loader: ValLoader
) -> BestEpoch | None:
    """Train and validate until the run ends; return the best of these epochs, if there is one."""
    best, world, validates = None, val_loader.world, not run.job.config.no_val
    # An epoch in which the run was suspended is finished regardless of limits.
    is_within = state.batch_number > state.epoch * state.schedule.batches_per_epoch
    if not is_within and has_ended(run, state, world):
        return None
    with watchdog.phase("resuming"):
        accumulate_again(state, train_loader)
    while True:
        if validates:
            val_loader.start()  # its first batches are built meanwhile
        with watchdog.phase("training"):
            train_epoch(run, state, train_loader)
        validation = None
        if validates or has_ended(run, state, world, uncounted=1):
            with watchdog.phase("validation"):
                validation = validate(run, state, val_loader)
        best = end_epoch(run, state, validation) or best
        if validation is not None and has_ended(run, state, world):
            return best


def has_ended(run: Run, state: TrainState, world: World, uncounted: int = 0) -> bool:
    """Return whether the run ends now, as decided by rank 0.

    uncounted: 1 after an epoch that is not counted yet.
    """
    seconds = run.results.seconds + (state.timer.total() if uncounted else 0)
    rule, epoch = EndRule.of(run.job.config), state.epoch + uncounted
    return bool(world.broadcast_text(rule.reason(epoch, state.best_epoch, seconds)))


def train_epoch(run: Run, state: TrainState, loader: TrainLoader) -> None:
    config = run.job.config
    done = state.batch_number - state.epoch * len(loader)
    title, before = f"epoch {state.epoch + 1}/{config.epochs}", run.results.seconds
    with Progress(len(loader), title, "batches", done) as progress:
        scores = state.class_scores.get(state.epoch, ())
        is_last = state.epoch + 1 >= state.schedule.epochs
        batches = loader.epoch(state.epoch, done, scores, is_last)
        while True:
            with state.timer.waiting():
                batch = next(batches, None)
            if batch is None:
                break
            if state.batch_number < plotted_batches(config.no_plots):
                plot_trained_batch(run, state.batch_number, batch)
            train_step(state, batch, state.timer)
            run.work.add_batch(batch)
            left = clock(seconds_left(before + state.timer.total(), state))
            progress.update(f"in all {left}, {state.watch.progress()}")
            watchdog.progress()
            # The only place between training steps that stops or saves.
            stop(run, state, state.watch.asked)
            if config.save_steps and state.batch_number % config.save_steps == 0:
                save_state(run, state)
    settle(state)


def seconds_left(spent: float, state: TrainState) -> float:
    """Return an estimate for the rest of the training, by the mean time of a batch so far.

    spent: seconds since its begin.
    """
    batches = state.schedule.epochs * state.schedule.batches_per_epoch
    return spent * (batches / state.batch_number - 1)


def validate(
    run: Run, state: TrainState, loader: ValLoader, is_in_training: bool = True
) -> Validation:
    """Validate the EMA in the precision of the steps, with twice as many images per pass.

    is_in_training: compute losses too, and allow the run to stop; it validates again on resume.
    """
    with state.timer("validation"):
        if is_in_training:
            state.ema.agree()
        execution, data = state.execution, run.job.data
        dtype, layout = execution.autocast_dtype, execution.channels_last
        model = in_precision(state.ema.model, state.device, dtype, layout)
        evaluation = Evaluation(
            model, data.val, data.class_names, state.device, channels_last=layout,
            loss=state.loss if is_in_training else None, at_a_time=2 * state.micro_batch,
        )  # fmt: skip
        return evaluation.run(loader, partial(stop, run, state) if is_in_training else None)


def validate_best(run: Run, state: TrainState, loader: ValLoader) -> BestEpoch | None:
    """Validate the best weights at the end of a run that found them before it was resumed.

    This loads them into the state's EMA. Return None if a rank does not have the file, or if better
    weights were found but not kept.
    """
    path = run.states.best
    if loader.world.any(not path.exists()):
        return None
    checkpoint = load_state(path)
    if checkpoint.header.best_fitness != state.best_fitness:
        return None
    nn.load_state_arrays(state.ema.model, checkpoint.ema)
    validation = validate(run, state, loader, is_in_training=False)
    return BestEpoch(checkpoint.header.epoch, validation.result)


def end_epoch(run: Run, state: TrainState, validation: Validation | None) -> BestEpoch | None:
    """Count and report the epoch, and save the state; return it if it is the best so far."""
    losses = state.watch.end_epoch()
    state.epoch += 1
    report_epoch(run, state, losses, validation)
    if run.job.config.image_weights and validation is not None:
        keep_class_scores(state, state.model.head.class_scores(validation.result))
    state.timer = StageTimer(state.device)  # saving counts towards the next epoch
    is_best = validation is not None and found_best(state, validation.result)
    keep_weights(run, state, is_best)
    write_results(run)
    return BestEpoch(state.epoch, validation.result) if validation and is_best else None


def report_epoch(
    run: Run, state: TrainState, losses: np.ndarray, validation: Validation | None
) -> None:
    settings, head = state.schedule.at(state.batch_number - 1), state.model.head
    rates = (settings.bias_rate, settings.weight_rate, settings.weight_rate)
    times, metrics, val_losses = state.timer.state(), {}, {}
    if validation is not None:
        metrics = head.metrics(validation.result)
        val_losses = head.short_losses(validation.losses)
    own = head.short_losses(losses)
    row = epoch_row(state.epoch - 1, own, metrics, val_losses, rates, times)
    run.add_epoch(state.epoch, row)
    numbers = [*own.values(), *(metrics.get(name, math.nan) for name in head.row_names())]
    seconds = times["total"]
    training = max(seconds - times["validation"], 1e-9)  # of two clocks on a GPU
    costs = Costs(
        seconds,
        len(run.job.data.train) / training,
        times["data_wait"] / seconds,
        backend.device.used_memory(state.device),
    )
    for line in state.table.lines(state.epoch, state.schedule.epochs, numbers, costs):
        log.info("%s", line)


def keep_class_scores(state: TrainState, scores: tuple[float, ...]) -> None:
    """Keep the scores for the next epoch, and those that selected pending batches."""
    first = (state.last_update + 1) // state.schedule.batches_per_epoch
    kept = {epoch: before for epoch, before in state.class_scores.items() if epoch >= first}
    state.class_scores = {**kept, state.epoch: scores}


def stop(run: Run, state: TrainState, agreed: bool | None = None) -> None:
    """Save the state and raise Suspended if the run was asked to stop; see `StopRequests.cause`."""
    requests = run.job.session.stop
    cause = requests.cause(agreed)
    if cause is None:
        return
    save_state(run, state)
    done = count(state.batch_number, "batch", "batches")
    if requests.interrupted:
        text = f"interrupted after {done}; continue with {run.resume_command()}"
        raise Suspended(text, by_hand=True)
    raise Suspended(f"suspended after {done}: {cause}; continue with --resume {run.folder}")


def save_state(run: Run, state: TrainState, is_best: bool = False, also: str = "") -> None:
    with watchdog.phase("saving"):
        checkpoint = capture(run, state, is_best)
        if this_process().is_main:
            run.states.save(checkpoint, is_best, also)


def found_best(state: TrainState, result: Result) -> bool:
    """Return whether the last counted epoch is the best so far; if so, record its fitness."""
    fitness = state.model.head.fitness(result)
    if not fitness >= state.best_fitness:  # NaN is not
        return False
    state.best_fitness, state.best_epoch = fitness, state.epoch
    return True


def keep_weights(run: Run, state: TrainState, is_best: bool) -> None:
    """Save the state as last.safetensors, and under the names requested by flags."""
    config, number = run.job.config, state.epoch - 1  # counted as results.csv does
    period = config.save_period
    also = f"epoch{number}" if period > 0 and number % period == 0 else ""
    save_state(run, state, is_best and not config.no_save, also)
