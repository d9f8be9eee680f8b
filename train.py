"""Train a detector: flags -> dataset, model, optimizer -> epochs -> weights, results.csv, plots.

An image becomes a loss in `train_step`: a `Batch` of `utils/data/loading/loader.py` goes through
`models/detector.py` and `models/heads/anchor/loss.py`; the optimizer step and the average follow.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

import backend
from backend import autograd, dist, nn
from backend.checks import CPU
from backend.processes import processes
from models.images import images_to_tensor
from models.training.schedule import StepSettings
from models.training.state import TrainState, build_state
from models.training.step_watch import BatchName, format_losses
from utils.cli.command import run_command
from utils.cli.config import (
    Hyperparameters,
    TrainConfig,
    as_document,
    read_hyperparameters,
    read_train_flags,
    run_settings,
)
from utils.data.loading.loader import Batch, TrainLoader, ValLoader
from utils.data.sources.dataset import load_dataset
from utils.data.sources.labels import Sample
from utils.evaluation.coco.metric import EvaluationResult
from utils.evaluation.progress import NOTHING_DONE, EvaluationSuspended
from utils.processes import watchdog
from utils.processes.host_memory import keep_freed_memory
from utils.processes.launch import launch
from utils.processes.numa.binding import bind_numa
from utils.processes.ranks import ALONE, Ranks, joined, on_main
from utils.processes.suspend import StopRequests, Suspended, listening
from utils.report.console import (
    StageTimer,
    metrics_table,
    progress_bar,
    result_row,
    write_yaml,
)
from utils.report.plots import plot_batch, plot_labels, plot_precision_recall, plot_results
from utils.state.checkpoint import load_weights
from utils.state.resume import (
    ResumePoint,
    describe_samples,
    find_resume_point,
    load_state,
    require_equal_data,
    require_same_point,
    resumed_config,
)
from utils.state.run import Run, begin_run
from val import DEFAULT_SUPPRESSION, Validation, evaluate, load_split, loader_workers

# The model's classes derive from the framework's own Module: imported once it is chosen.
if TYPE_CHECKING:
    from models.heads.base import LossTerms

GRADIENT_NORM_LIMIT = 10.0
PLOTTED_BATCHES = 3

log = logging.getLogger("train")


def main() -> None:
    values, given = read_train_flags()
    with listening(values["suspend_file"], values["time_limit"]) as stop:
        point = find_resume_point(values)
        if point is None:
            config = TrainConfig(**values)
            hyp = read_hyperparameters(config.hyp)
        else:
            config, hyp = resumed_config(values, given, point.header)
            if point.is_finished:
                return log.info("%s is finished, nothing is left to do", point.folder)
        launch(config)
        if config.bind_numa:
            log.info(bind_numa(config.device))
        with joined(config, stop.was_terminated) as ranks:
            stop.take_signals()  # a framework may have its own answers
            stop.agree = ranks.any
            require_same_point(point, ranks)
            run_training(config, hyp, point, stop, ranks)


def run_training(
    config: TrainConfig,
    hyp: Hyperparameters,
    point: ResumePoint | None,
    stop: StopRequests,
    ranks: Ranks = ALONE,
) -> None:
    """Build the parts and run: a new run, or the rest of one."""
    start = load_weights(config.weights) if config.weights and point is None else None
    dataset = load_dataset(config.data)
    train_samples = load_split(dataset, "train", *ranks)
    val_samples = load_split(dataset, "val", *ranks)
    data = {"train": describe_samples(train_samples), "val": describe_samples(val_samples)}
    if point is not None:
        require_equal_data(point.header, dataset.class_names, data)
    size, batch, workers = config.image_size, config.batch_size, loader_workers(config.workers)
    cache = config.cache
    if config.replay:
        workers, cache = 0, ""  # for one batch
    with TrainLoader(
        train_samples, size, batch, hyp.augmentation(), config.seed, workers, cache, *ranks
    ) as train_loader:
        train_loader.start()  # its processes start up while the framework is imported
        backend.use(config.backend)
        stop.take_signals()
        device = backend.device.resolve(config.device)
        if device == CPU:
            keep_freed_memory()
        with watchdog.phase("building the model"):  # PyTorch imports much for it
            from models.training.checkpointing import rebuild_model, restore
            from models.training.start import build_model

            if point is None:
                model = build_model(config, start, dataset.class_names)
            else:
                model = rebuild_model(point.header.model)
            state = build_state(config, hyp, model, len(train_loader), device)
        if config.replay:
            from models.training.replay import replay

            assert start is not None  # --replay needs --weights
            return replay(config, state, start, train_loader)
        run = begin_run(config, hyp, dataset.class_names, point, stop, data, ranks)
        describe_run(run, state, train_samples)
        if point is not None:
            restore(run, state, load_state(point.path))
        with ValLoader(
            val_samples, size, 2 * batch, workers, model.stride, True, cache, *ranks
        ) as val_loader:
            validation = train(run, state, train_loader, val_loader, val_samples)
    cached = {"training": train_loader.cached, "validation": val_loader.cached}
    conclude_run(run, state, validation)
    write_work(run, state, len(train_samples), len(val_samples), cached)


def train(
    run: Run,
    state: TrainState,
    train_loader: TrainLoader,
    val_loader: ValLoader,
    val_samples: Sequence[Sample],
) -> Validation:
    """Train and validate epoch by epoch; returns the last validation.

    Raises:
        Suspended: the run was asked to stop; its state is saved.
    """
    write_results(run)
    state.timer = StageTimer(state.device, state.seconds_before)
    validation = None
    while state.epoch < run.config.epochs:
        with watchdog.phase("training"):
            train_epoch(run, state, train_loader)
        with watchdog.phase("validation"):
            validation = validate(run, state, val_loader, val_samples)
        end_epoch(run, state, validation)
    # A run that was killed between its last state and its end is validated once more.
    return validation or validate(run, state, val_loader, val_samples)


def train_epoch(run: Run, state: TrainState, loader: TrainLoader) -> None:
    """The rest of the pass over the training images in which the state is."""
    done = state.batch_number - state.epoch * len(loader)
    title = f"epoch {state.epoch + 1}/{run.config.epochs}"
    with progress_bar(len(loader), title, done) as progress:
        for batch in state.timer.waiting(loader.epoch(state.epoch, done)):
            if state.batch_number < PLOTTED_BATCHES:
                plot_trained_batch(run, state, batch)
            train_step(state, batch, state.timer)
            run.work.add_batch(batch)
            progress.set_postfix_str(format_losses(state.watch.means()), refresh=False)
            progress.update()
            watchdog.progress()
            between_batches(run, state)


def validate(
    run: Run, state: TrainState, loader: ValLoader, samples: Sequence[Sample]
) -> Validation:
    """The validation of the average, or the rest of it."""
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
                all_gather=dist.all_gather,
                progress=state.evaluation,
                should_stop=should_stop,
            )
    except EvaluationSuspended as stopped:
        state.evaluation = stopped.progress
        raise suspended(run, state, cause) from None


def end_epoch(run: Run, state: TrainState, validation: Validation) -> None:
    """Count the epoch, report it, and keep the state."""
    losses = state.watch.end_epoch()
    state.epoch += 1
    report_epoch(run, state, losses, validation)
    # Saving the state counts in the seconds of the epoch after it.
    state.timer, state.evaluation = StageTimer(state.device), NOTHING_DONE
    keep_weights(run, state, validation.result)
    write_results(run)


def between_batches(run: Run, state: TrainState) -> None:
    """The one place between two training steps at which a run may stop or save."""
    cause = run.stop.cause()
    if cause is not None:
        raise suspended(run, state, cause)
    if run.config.save_steps and state.batch_number % run.config.save_steps == 0:
        save_state(run, state)


def suspended(run: Run, state: TrainState, cause: str | None) -> Suspended:
    """Save the state of a run that was asked to stop; what then ends it."""
    save_state(run, state)
    return Suspended(
        f"suspended after {state.batch_number} batches: {cause}; go on with --resume {run.folder}"
    )


def save_state(run: Run, state: TrainState, is_best: bool = False) -> None:
    """Write everything that the rest of the run depends on."""
    from models.training.checkpointing import capture

    with watchdog.phase("saving"):
        checkpoint = capture(run, state, is_best)
        if processes().is_main:
            run.states.save(checkpoint, is_best)


def train_step(state: TrainState, batch: Batch, stage: StageTimer) -> LossTerms:
    """Forward and backward of one batch and, once enough are accumulated, one update."""
    settings = state.schedule.at(state.batch_number)
    with stage("to_device"):
        layout = state.execution.channels_last
        images = images_to_tensor(batch.images, state.device, state.dtype, layout)
    is_last = state.batch_number - state.last_update >= settings.accumulate
    with dist.averaging(state.parallel, is_last, stage):
        terms = autograd.value_and_backward(
            state.forward, state.step_loss, images, batch.targets, stage
        )
    state.watch.add(name_batch(state, batch), terms)
    if is_last:
        update_weights(state, settings, stage)
        state.last_update = state.batch_number
    state.batch_number += 1
    return terms


def update_weights(state: TrainState, settings: StepSettings, stage: StageTimer) -> None:
    """One step of the optimizer and the average; neither when a number is not finite."""
    with stage("optimizer"):
        parameters = [parameter for _, parameter in nn.named_parameters(state.model)]
        state.loss_scale.unscale(parameters)
        norm = autograd.clip_gradients(parameters, GRADIENT_NORM_LIMIT)
        finite = state.watch.update_is_finite(norm, state.loss_scale.can_fall)
        if finite:
            rates = (settings.bias_rate, settings.weight_rate, settings.weight_rate)
            state.optimizer.step(rates, settings.momentum)
        state.optimizer.zero_grad()
    state.loss_scale.update(finite)
    if not finite:
        state.ema.restore_statistics(state.model)
        return
    with stage("ema"):
        state.ema.update(state.model)


def name_batch(state: TrainState, batch: Batch) -> BatchName:
    """What --replay needs to make the batch of this step again."""
    step = state.batch_number - state.epoch * state.schedule.batches_per_epoch + 1
    return BatchName(state.epoch + 1, step, batch.global_indices)


def fitness(result: EvaluationResult) -> float:
    """What decides which weights are best, as in the public YOLOv5."""
    return 0.1 * result.map50 + 0.9 * result.map


def keep_weights(run: Run, state: TrainState, result: EvaluationResult) -> None:
    """Write the state as weights/last.safetensors and, if nothing was better, best.safetensors."""
    is_best = fitness(result) > state.best_fitness
    state.best_fitness = max(state.best_fitness, fitness(result))
    save_state(run, state, is_best)


@on_main
def plot_trained_batch(run: Run, state: TrainState, batch: Batch) -> None:
    """A picture of the first rank's share of a batch, with its boxes."""
    picture = run.folder / f"train_batch{state.batch_number}.jpg"
    plot_batch(batch.images, batch.targets, run.class_names, picture)


@on_main
def write_results(run: Run) -> None:
    """results.csv, as far as the run has come."""
    run.results.write(run.folder / "results.csv")


@on_main
def describe_run(run: Run, state: TrainState, samples: Sequence[Sample]) -> None:
    """Settings into the folder and, in two lines, on screen."""
    from models.detector import count_parameters

    write_yaml(run.folder / "opt.yaml", run_settings(run.config))
    write_yaml(run.folder / "hyp.yaml", as_document(run.hyp))
    plot_labels(samples, run.class_names, run.folder / "labels.jpg")
    log.info(backend.device.describe(state.device))
    log.info(
        "%s parameters, %d classes, %d images a pass, results in %s",
        f"{count_parameters(state.model):,}",
        len(run.class_names),
        len(samples),
        run.folder,
    )


def report_epoch(run: Run, state: TrainState, losses: np.ndarray, validation: Validation) -> None:
    """A row of results.csv and a line on screen."""
    settings = state.schedule.at(state.batch_number - 1)
    rates = (settings.bias_rate, settings.weight_rate, settings.weight_rate)
    result = validation.result
    row = result_row(state.epoch - 1, losses, result, validation.losses, rates, state.timer)
    run.results.append(row)
    log.info(
        "epoch %d/%d  %s  P %.3f  R %.3f  mAP50 %.3f  mAP50-95 %.3f  %.1f s, data wait %.0f %%",
        state.epoch,
        state.schedule.epochs,
        format_losses(losses),
        result.mean_precision,
        result.mean_recall,
        result.map50,
        result.map,
        row["seconds/epoch"],
        100 * row["seconds/data_wait"] / row["seconds/epoch"],
    )


@on_main
def write_work(
    run: Run, state: TrainState, train_images: int, val_images: int, cached: Mapping[str, str]
) -> None:
    """work.json: what another run must have done too for compare.py to compare their times."""
    from models.detector import count_parameters

    work = {
        "device": state.device.partition(":")[0],  # "cpu" or "cuda"
        "processes": processes().world_size,
        "precision": state.execution.dtype,
        "tf32": backend.device.rounds_to_tf32(state.device),
        "layout": state.execution.layout,
        "gradient_norm_limit": GRADIENT_NORM_LIMIT,
        "accumulate": state.schedule.accumulate,
        "optimizer_steps": state.ema.updates,
        "parameters": count_parameters(state.model),
        "train_images": train_images,
        "cached": dict(cached),
        "plotted_batches": PLOTTED_BATCHES,
        "validation": {"images": val_images, "every": 1, **asdict(DEFAULT_SUPPRESSION)},
        "hyperparameters": as_document(run.hyp),
        "settings": run_settings(run.config),
    }
    framework = backend.device.describe(state.device)
    path, losses = run.folder / "work.json", state.watch.first_losses
    run.work.write(path, framework, state.device, work, state.means, losses)


@on_main
def conclude_run(run: Run, state: TrainState, validation: Validation) -> None:
    """Curves, the last validation's table, and where everything lies."""
    plot_results(run.folder / "results.csv", run.folder / "results.png")
    plot_precision_recall(validation.result, run.folder / "PR_curve.png")
    print(metrics_table(validation.result))
    print(f"results and plots in {run.folder}")
    print(f"weights in {run.folder / 'weights'}: last.safetensors, best.safetensors; check with")
    command = [sys.executable, "val.py", "--weights", run.folder / "weights" / "last.safetensors"]
    command += ["--data", run.config.data, "--img", run.config.image_size]
    command += ["--batch-size", 2 * run.config.batch_size, "--device", state.device]
    print(shlex.join(map(str, command)))


if __name__ == "__main__":
    run_command(main, several=True)
