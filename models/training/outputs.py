"""What a run writes into its folder and says on screen, from its first line to its last.

Before: `loop.py`, epoch by epoch. After: the user, and `utils/comparison`, which reads work.json.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

import backend
from backend.processes import this_process
from models.detector import count_parameters
from models.evaluation import DEFAULT_SUPPRESSION, Validation
from models.heads.base import Head
from models.training.state import TrainState
from models.training.step import GRADIENT_NORM_LIMIT
from utils.cli.document import as_document, run_settings
from utils.data.loading.batch import Batch
from utils.data.sources.labels import Sample
from utils.files.yaml import write_yaml
from utils.processes.ranks import on_main
from utils.report.plots import plot_batch, plot_labels, plot_results
from utils.report.results import result_columns, result_row
from utils.screen.text import say
from utils.state.run import Run

PLOTTED_BATCHES = 3

log = logging.getLogger("train")


@on_main
def describe_run(run: Run, state: TrainState, samples: Sequence[Sample]) -> None:
    """Write the settings into the folder and, in two lines, on screen."""
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


@on_main
def plot_trained_batch(run: Run, state: TrainState, batch: Batch) -> None:
    """Draw the first rank's shard of a batch, with its boxes."""
    path = run.folder / f"train_batch{state.batch_number}.jpg"
    plot_batch(batch.images, batch.targets, run.class_names, path)


@on_main
def write_results(run: Run) -> None:
    """Write results.csv, as far as the run has come."""
    run.results.write(run.folder / "results.csv")


def columns_of(head: Head) -> list[str]:
    """Return the columns of results.csv for a task."""
    return result_columns(head.loss_names.values(), head.figure_names)


def report_epoch(run: Run, state: TrainState, losses: np.ndarray, validation: Validation) -> None:
    """Add a row to results.csv and say it in a line on screen."""
    settings = state.schedule.at(state.batch_number - 1)
    rates = (settings.bias_rate, settings.weight_rate, settings.weight_rate)
    head = state.model.head
    found = head.figures(validation.result)
    figures = {short: found[name] for name, short in head.figure_names.items()}
    measured = (losses, figures.values(), validation.losses, rates)
    row = result_row(columns_of(head), state.epoch - 1, *measured, state.timer)
    run.results.append(row)
    log.info(
        "epoch %d/%d  %s  %s  %.1f s, data wait %.0f %%",
        state.epoch,
        state.schedule.epochs,
        state.watch.describe(losses),
        "  ".join(f"{name} {figure:.3f}" for name, figure in figures.items()),
        row["seconds/epoch"],
        100 * row["seconds/data_wait"] / row["seconds/epoch"],
    )


@on_main
def conclude_run(run: Run, state: TrainState, validation: Validation) -> None:
    """Draw the curves; print the last validation's table, and where everything lies."""
    plot_results(run.folder / "results.csv", run.folder / "results.png")
    state.model.head.plot(validation.result, run.folder)
    say(*state.model.head.table(validation.result).splitlines())
    say(f"results and plots in {run.folder}")
    say(f"weights in {run.folder / 'weights'}: last.safetensors, best.safetensors; check with")
    command = [sys.executable, "val.py", "--weights", run.folder / "weights" / "last.safetensors"]
    command += ["--data", run.config.data, "--img", run.config.image_size]
    command += ["--batch-size", 2 * run.config.batch_size, "--device", state.device]
    say(shlex.join(map(str, command)))


@on_main
def write_work(
    run: Run, state: TrainState, train_images: int, val_images: int, cached: Mapping[str, str]
) -> None:
    """Write work.json: what another run must have done too for compare.py to compare their times.

    Args:
        cached: how many images a cache took, by split.
    """
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
