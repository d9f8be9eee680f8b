"""Train a detector: flags -> dataset, model, optimizer -> epochs -> weights, results.csv, plots.

An image becomes a loss in `train_step`: a `Batch` of `utils/data/loader.py` goes through
`models/detector.py` and `models/heads/anchor/loss.py`; the optimizer step and the average follow.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import backend
from backend import autograd, dist, nn
from backend.checks import CPU
from backend.contract import Optimizer, Tensor
from models.ema import ModelEMA
from models.multi_tensor import choose_updates
from models.optimizer import build_optimizer, parameter_groups
from utils.checkpoint import Checkpoint, Header, load_weights, save_checkpoint
from utils.command import run_command
from utils.config import (
    Hyperparameters,
    TrainConfig,
    as_document,
    parse_train_flags,
    read_hyperparameters,
)
from utils.data.labels import Sample
from utils.data.loader import Batch, TrainLoader, ValLoader
from utils.data.sources import load_dataset
from utils.host_memory import keep_freed_memory
from utils.images import images_to_tensor
from utils.loss_scale import LossScale
from utils.metrics import EvaluationResult
from utils.plots import plot_batch, plot_labels, plot_precision_recall, plot_results
from utils.report import (
    ResultsFile,
    StageTimer,
    create_run_folder,
    metrics_table,
    progress_bar,
    result_row,
    write_yaml,
)
from utils.schedule import Schedule, StepSettings
from utils.step_watch import BatchName, StepWatch, format_losses
from utils.work_record import WorkRecord
from val import DEFAULT_SUPPRESSION, Validation, evaluate, load_split, loader_workers

# The model's classes derive from the framework's own Module: imported once it is chosen.
if TYPE_CHECKING:
    from models.detector import Detector
    from models.execution import Execution
    from models.heads.anchor.loss import DetectionLoss, LossTerms

GRADIENT_NORM_LIMIT = 10.0
PLOTTED_BATCHES = 3

log = logging.getLogger("train")


@dataclass(frozen=True)
class Run:
    """What stays as it is during a run."""

    config: TrainConfig
    hyp: Hyperparameters
    class_names: tuple[str, ...]
    folder: Path
    work: WorkRecord = field(default_factory=WorkRecord)


@dataclass
class TrainState:
    """What a training step reads and changes."""

    model: Detector
    ema: ModelEMA
    loss: DetectionLoss
    optimizer: Optimizer
    schedule: Schedule
    device: str
    dtype: str  # of weights and images
    execution: Execution
    parallel: Any  # the model as several ranks train it together
    forward: Callable[[Tensor], Sequence[Tensor]]  # that, and
    step_loss: Callable[[Any, Any], LossTerms]  # the loss, as a step runs them
    loss_scale: LossScale
    means: Mapping[str, Any]  # that were chosen, for work.json
    watch: StepWatch = field(default_factory=StepWatch)
    batch_number: int = 0  # batches since the start of training
    last_update: int = -1  # number of the batch of the last optimizer step
    epoch: int = 0  # finished epochs
    best_fitness: float = -1.0


def main() -> None:
    config = parse_train_flags()
    hyp = read_hyperparameters(config.hyp)
    augment = hyp.augmentation()
    start = load_weights(config.weights) if config.weights else None
    dataset = load_dataset(config.data)
    train_samples = load_split(dataset, "train")
    val_samples = load_split(dataset, "val")
    size, batch, workers = config.image_size, config.batch_size, loader_workers(config.workers)
    cache = config.cache
    if config.replay:
        workers, cache = 0, ""  # for one batch
    with TrainLoader(
        train_samples, size, batch, augment, config.seed, workers, cache
    ) as train_loader:
        train_loader.start()  # its processes start up while the framework is imported
        backend.use(config.backend)
        device = backend.device.resolve(config.device)
        if device == CPU:
            keep_freed_memory()
        from models.start import build_model

        model = build_model(config, start, dataset.class_names)
        state = build_state(config, hyp, model, len(train_loader), device)
        if config.replay:
            from models.replay import replay

            assert start is not None  # --replay needs --weights
            return replay(config, state, start, train_loader)
        folder = create_run_folder(config.project, config.name, config.exist_ok)
        run = Run(config, hyp, dataset.class_names, folder)
        describe_run(run, state, train_samples)
        with ValLoader(
            val_samples, size, 2 * batch, workers, model.stride, cache=cache
        ) as val_loader:
            validation = train(run, state, train_loader, val_loader, val_samples)
    cached = {"training": train_loader.cached, "validation": val_loader.cached}
    write_work(run, state, len(train_samples), len(val_samples), cached)
    conclude_run(run, state, validation)


def train(
    run: Run,
    state: TrainState,
    train_loader: TrainLoader,
    val_loader: ValLoader,
    val_samples: Sequence[Sample],
) -> Validation:
    """Train and validate epoch by epoch; returns the last validation."""
    results = ResultsFile(run.folder / "results.csv")
    for _ in range(run.config.epochs):
        timer = StageTimer(state.device)
        losses = train_epoch(run, state, train_loader, timer)
        with timer("validation"):
            state.ema.agree()
            validation = evaluate(
                state.ema.model,
                val_loader,
                val_samples,
                run.class_names,
                state.device,
                loss=state.loss,
                channels_last=state.execution.channels_last,
            )
        keep_weights(run, state, validation.result)
        report_epoch(results, state, losses, validation, timer)
    return validation


def train_epoch(run: Run, state: TrainState, loader: TrainLoader, timer: StageTimer) -> np.ndarray:
    """One pass over the training images.

    Returns:
        (3,) float64: mean box, objectness and classification loss of the batches.
    """
    with progress_bar(len(loader), f"epoch {state.epoch + 1}/{run.config.epochs}") as progress:
        for batch in timer.waiting(loader.epoch(state.epoch)):
            if state.batch_number < PLOTTED_BATCHES:
                picture = run.folder / f"train_batch{state.batch_number}.jpg"
                plot_batch(batch.images, batch.targets, run.class_names, picture)
            train_step(state, batch, timer)
            run.work.add_batch(batch)
            progress.set_postfix_str(format_losses(state.watch.means()), refresh=False)
            progress.update()
    state.epoch += 1
    return state.watch.end_epoch()


def train_step(state: TrainState, batch: Batch, stage: StageTimer) -> LossTerms:
    """Forward and backward of one batch and, once enough are accumulated, one update."""
    settings = state.schedule.at(state.batch_number)
    with stage("to_device"):
        layout = state.execution.channels_last
        images = images_to_tensor(batch.images, state.device, state.dtype, layout)
    is_last = state.batch_number - state.last_update >= settings.accumulate
    with dist.averaging(state.parallel, is_last):
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
    return BatchName(state.epoch + 1, step, batch.sample_indices)


def build_state(
    config: TrainConfig,
    hyp: Hyperparameters,
    model: Detector,
    batches: int,
    device: str,
    dtype: str = "float32",
) -> TrainState:
    """Average, loss, optimizer and schedule of a new run, for so many batches an epoch."""
    from models.execution import choose_execution
    from models.freezing import freeze_layers
    from models.fused_iou import choose_box_iou
    from models.heads.anchor.ciou import complete_iou
    from models.heads.anchor.loss import DetectionLoss, LossGains
    from models.parallel import parallelize

    schedule = Schedule(hyp, config.epochs, batches, config.batch_size, config.cosine)
    model = nn.place(model, device, dtype)
    freeze_layers(model, config.freeze)
    parallel = parallelize(config, model)
    gains = LossGains.scaled(
        hyp, len(model.head.strides), model.spec.num_classes, config.image_size
    )
    box_iou = choose_box_iou(device) if config.bbox_iou_optim else complete_iou
    updates = choose_updates(config, device, dtype)
    groups = parameter_groups(model, schedule.weight_decay)
    execution = choose_execution(config, device, dtype)
    loss = DetectionLoss(model.head, gains, box_iou)
    loss_scale = LossScale.of_precision(execution.dtype)
    box_iou_means = "plain" if box_iou is complete_iou else "fast"
    return TrainState(
        model=model,
        ema=ModelEMA(model, updates.average),
        loss=loss,
        optimizer=build_optimizer(config, hyp, groups, updates.optimizers),
        schedule=schedule,
        device=device,
        dtype=dtype,
        execution=execution,
        parallel=parallel,
        forward=execution.forward_of(parallel),
        step_loss=loss_scale.scaled(execution.loss_of(loss)),
        loss_scale=loss_scale,
        means={"compiled": execution.compiled, "box_iou": box_iou_means, **updates.means},
    )


def fitness(result: EvaluationResult) -> float:
    """What decides which weights are best, as in the public YOLOv5."""
    return 0.1 * result.map50 + 0.9 * result.map


def keep_weights(run: Run, state: TrainState, result: EvaluationResult) -> None:
    """Write weights/last.safetensors and, if nothing was better, best.safetensors."""
    is_best = fitness(result) > state.best_fitness
    state.best_fitness = max(state.best_fitness, fitness(result))
    header = Header(
        model=state.model.spec.document,
        class_names=run.class_names,
        epoch=state.epoch,
        batch_number=state.batch_number,
        last_update=state.last_update,
        ema_updates=state.ema.updates,
        best_fitness=state.best_fitness,
        hyperparameters=as_document(run.hyp),
        settings=as_document(run.config),
        backend=backend.use(),
        loss_scale=state.loss_scale.value,
    )
    checkpoint = Checkpoint(
        header,
        model=nn.state_arrays(state.model),
        ema=nn.state_arrays(state.ema.model),
        optimizer=state.optimizer.state_arrays(),
    )
    folder = run.folder / "weights"
    folder.mkdir(exist_ok=True)
    for name in ("last", "best") if is_best else ("last",):
        save_checkpoint(folder / f"{name}.safetensors", checkpoint)


def describe_run(run: Run, state: TrainState, samples: Sequence[Sample]) -> None:
    """Settings into the folder and, in two lines, on screen."""
    from models.detector import count_parameters

    write_yaml(run.folder / "opt.yaml", as_document(run.config))
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


def report_epoch(
    results: ResultsFile,
    state: TrainState,
    losses: np.ndarray,
    validation: Validation,
    timer: StageTimer,
) -> None:
    """A row of results.csv and a line on screen."""
    settings = state.schedule.at(state.batch_number - 1)
    rates = (settings.bias_rate, settings.weight_rate, settings.weight_rate)
    result = validation.result
    row = result_row(state.epoch - 1, losses, result, validation.losses, rates, timer)
    results.append(row)
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


def write_work(
    run: Run, state: TrainState, train_images: int, val_images: int, cached: Mapping[str, str]
) -> None:
    """work.json: what another run must have done too for compare.py to compare their times."""
    from models.detector import count_parameters

    work = {
        "device": state.device.partition(":")[0],  # "cpu" or "cuda"
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
        "settings": as_document(run.config),
    }
    framework = backend.device.describe(state.device)
    path, losses = run.folder / "work.json", state.watch.first_losses
    run.work.write(path, framework, state.device, work, state.means, losses)


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
    run_command(main)
