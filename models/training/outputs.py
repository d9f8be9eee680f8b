"""Files and log lines of a run."""

import logging
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from duet import backend
from duet.backend.processes import this_process
from duet.models.detector import count_parameters
from duet.models.evaluation.evaluate import DEFAULT_SUPPRESSION
from duet.models.graph import count_gflops, plan_layers
from duet.models.heads.base import Head, Result
from duet.models.training.advice import advice_at_end, advice_at_start
from duet.models.training.card import write_card
from duet.models.training.step import GRADIENT_NORM_LIMIT, TrainState
from duet.utils.cli.run_config import as_document
from duet.utils.cli.train_config import run_settings
from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import finished
from duet.utils.data.sources.samples import table_of
from duet.utils.files.yaml_files import write_yaml
from duet.utils.processes.cores import loader_workers
from duet.utils.processes.ranks import on_main
from duet.utils.progress import clock
from duet.utils.project import command_line, from_here
from duet.utils.report.plots.images import plot_batch
from duet.utils.report.plots.label_statistics import plot_labels
from duet.utils.report.plots.results import plot_results
from duet.utils.report.results import result_columns
from duet.utils.state.progress import EndRule
from duet.utils.state.run import Run
from duet.utils.text import count, say

PLOTTED_BATCHES = 3
COLUMNS, NAME_WIDTH = 80, 9  # for the summary
NOTHING_YET = "nothing was found yet: this is normal in the first epochs, so train longer"

log = logging.getLogger("train")


class BestEpoch(NamedTuple):
    epoch: int  # from 1
    result: Result  # validation result, read by `Head.metrics`


class Trained(NamedTuple):
    folder: Path
    weights: Path  # best.safetensors, or last.safetensors without a best epoch
    epoch: int | None  # best epoch, from 1
    metrics: Mapping[str, float]  # its metrics, named as in results.csv without "metrics/"


def trained(run: Run, state: TrainState, best: BestEpoch | None) -> Trained:
    metrics = state.model.head.metrics(best.result) if best is not None else {}
    return Trained(run.folder, weights_to_use(run, best), best and best.epoch, metrics)


def weights_to_use(run: Run, best: BestEpoch | None) -> Path:
    """Return the best weights of a run, or the last ones if it has no best epoch."""
    name = "last" if run.job.config.no_save or best is None else "best"
    return run.folder / "weights" / f"{name}.safetensors"


@on_main
def describe_run(run: Run, state: TrainState) -> None:
    job, names = run.job, run.job.data.class_names
    write_yaml(run.folder / "opt.yaml", run_settings(job.config))
    write_yaml(run.folder / "hyp.yaml", as_document(job.hyp))
    write_yaml(run.folder / "classes.yaml", {"names": dict(enumerate(names))})
    if not job.config.no_plots:
        plot_labels(job.data.train, names, run.folder / "labels.jpg")
    for line in (*summary_lines(run, state), *advice_at_start(job)):
        log.info("%s", line)


def summary_lines(run: Run, state: TrainState) -> list[str]:
    """Return a run's summary in lines of 80 columns: data, model, device, recipe, results."""
    config, hyp, data = run.job.config, run.job.hyp, run.job.data
    model = state.model
    num_objects = table_of(data.train).num_objects
    labels, background = int(num_objects.sum()), int((num_objects == 0).sum())
    without = f", {background:,} of them without" if background else ""
    gflops = count_gflops(plan_layers(model.spec), config.image_size, folded=True)
    workers = loader_workers(config.workers, config.device)
    together = config.batch_size * state.schedule.accumulate
    update = f" ({together} per update)" if state.schedule.accumulate > 1 else ""
    parts = {
        "data": [
            f"{config.data}: {count(len(data.train), 'image')} with "
            f"{count(labels, 'label')}{without}; "
            f"{count(len(data.val), 'image')} for validation"
        ],
        "model": [
            Path(config.cfg or config.weights or model.head.task.model).name,
            count(model.spec.num_classes, "class", "classes"),
            count(len(model.spec.layers), "layer"),
            count(count_parameters(model), "parameter"),
            f"{gflops:.3g} GFLOPs at {config.image_size} px",
        ],
        "device": [
            f"{backend.device.describe(state.device)}; {state.execution.described}; "
            f"{workers or 'no'} loader {'worker' if workers == 1 else 'workers'}"
        ],
        "recipe": [
            config.optimizer,
            f"learning rate {hyp.lr0:g} to {hyp.lr0 * hyp.lrf:g}",
            f"batch {config.batch_size}{update}",
            count(config.epochs, "epoch"),
            f"seed {config.seed}",
        ],
        "results": [str(run.folder)],
    }
    wrapper = textwrap.TextWrapper(COLUMNS, subsequent_indent=" " * NAME_WIDTH)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    texts = [f"{name:<{NAME_WIDTH}}{', '.join(words)}" for name, words in parts.items()]
    return [line for text in texts for line in wrapper.wrap(text)]


def plotted_batches(no_plots: bool) -> int:
    return 0 if no_plots else PLOTTED_BATCHES


@on_main
def plot_trained_batch(run: Run, number: int, batch: Batch) -> None:
    """Plot rank 0's shard of a batch with its boxes."""
    path = run.folder / f"train_batch{number}.jpg"
    images = batch.images
    if batch.finishing is not None:
        images = finished(images, batch.finishing)
    plot_batch(images, batch.targets, run.job.data.class_names, path)


@on_main
def write_results(run: Run) -> None:
    run.results.write(run.folder / "results.csv")
    run.results.write_lines(run.folder / "results.jsonl")


def columns_of(head: Head) -> list[str]:
    return result_columns(head.loss_names.values(), head.metric_names)


@on_main
def conclude_run(run: Run, state: TrainState, best: BestEpoch | None) -> None:
    """Plot the curves; print the best epoch's metrics and the paths of the results."""
    head, config = state.model.head, run.job.config
    metrics = head.metrics(best.result) if best is not None else {}
    if not config.no_plots:
        plot_results(run.results, run.folder / "results.png")
        if best is not None:
            head.task.report.load().plot(best.result, run.job.data.val, run.folder)
    if best is not None:  # before the lines, which a full disk may not take
        write_card(run.folder, run.job, state, best.epoch, best.result)
    run.log_end(best.epoch if best else None, metrics)
    say(*end_lines(run, state, best, metrics))


def end_lines(
    run: Run, state: TrainState, best: BestEpoch | None, metrics: Mapping[str, float]
) -> Iterator[str]:
    head, config, folder = state.model.head, run.job.config, from_here(run.folder)
    if best is not None:
        yield from head.task.report.load().table(best.result).splitlines()
        if not any(metrics.values()):
            yield NOTHING_YET
    if state.epoch < config.epochs:
        reason = EndRule.of(config).reason(state.epoch, state.best_epoch, run.results.seconds)
        yield f"stopped early after epoch {state.epoch} of {config.epochs}: {reason}"
    yield f"{count(state.epoch, 'epoch')} in {clock(run.results.seconds)}"
    if best is not None:
        title = f"best: epoch {best.epoch} of {config.epochs}"
        shown = [f"{short} {metrics[name]:.3f}" for name, short in head.row_names().items()]
        yield "  ".join([title, *shown])
    elif state.best_epoch:
        yield f"epoch {state.best_epoch} was the best, but its weights were not kept"
    yield f"results{'' if config.no_plots else ' and plots'} in {folder}"
    names = ["last"] if config.no_save or not best else ["last", "best"]
    files = ", ".join(f"{name}.safetensors" for name in names)
    yield f"weights in {folder / 'weights'}: {files}"
    yield from advice_at_end(config, state, folder / "weights" / "last.safetensors")
    yield from next_commands(run, from_here(weights_to_use(run, best)))
    for samples in (run.job.data.train, run.job.data.val):
        yield from table_of(samples).remarks.summary()


def next_commands(run: Run, weights: Path) -> list[str]:
    config, first = run.job.config, run.job.data.val[0]
    data = ["--data", config.data]
    data += ["--split", str(config.train_part)] if config.train_part else []
    data += ["--single-cls"] if config.single_class else []
    images = from_here(first.image_path.parent)
    with_weights = ["--weights", weights]
    with_weights += ["--backend", config.backend] if config.backend else []
    commands = [
        command_line("val", *with_weights, *data),
        command_line("detect", *with_weights, "--source", images if images.is_dir() else "images/"),
        command_line("export", *with_weights),
    ]
    return ["next:", *(f"  {command}" for command in commands)]


@on_main
def write_work(run: Run, state: TrainState, cached: Mapping[str, str]) -> None:
    """Write work.json: the work that compare.py requires to be equal before comparing times.

    cached: how many images each loader's cache takes.
    """
    config = run.job.config
    validation = {"images": len(run.job.data.val), "every": state.epoch if config.no_val else 1}
    work = {
        "device": state.device.partition(":")[0],  # "cpu" or "cuda"
        "processes": this_process().world_size,
        "precision": state.execution.dtype,
        "tf32": backend.device.rounds_to_tf32(state.device),
        "layout": state.execution.layout,
        "gradient_norm_limit": GRADIENT_NORM_LIMIT,
        "accumulate": state.schedule.accumulate,
        "optimizer_steps": state.ema.updates,
        "parameters": count_parameters(state.model),
        "train_images": len(run.job.data.train),
        "cached": dict(cached),
        "epochs": state.epoch,
        "plotted_batches": plotted_batches(config.no_plots),
        "validation": {**validation, **asdict(DEFAULT_SUPPRESSION)},
        "hyperparameters": as_document(run.job.hyp),
        "settings": run_settings(config),
    }
    name, means = backend.device.describe(state.device), dict(state.implementations)
    described = {"framework": name, "device": state.device, "means": means}
    run.work.write(run.folder / "work.json", described, work, state.watch.first_losses)
