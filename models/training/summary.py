"""The summary of a run, shown before its first epoch: data, model, device, recipe, results."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import backend
from backend.words import count
from models.detector import count_parameters
from models.graph import plan_layers
from models.operations import count_gflops
from models.training.state import TrainState
from utils.cli.train_config import TrainConfig
from utils.data.sources.samples import Sample, table_of
from utils.processes.cores import loader_workers
from utils.state.run import Run

COLUMNS, NAME_WIDTH = 80, 9
MEANS = {"box_iou": "box IoU", "average": "EMA"}  # on screen; others by their own name


def summary_lines(
    run: Run, state: TrainState, train: Sequence[Sample], val: Sequence[Sample]
) -> list[str]:
    """Return the summary of a run in lines of 80 columns."""
    told = {
        "data": describe_data(run.config.data, train, val),
        "model": describe_model(run.config, state),
        "device": f"{describe_means(state)}; {describe_loader(run.config)}",
        "recipe": describe_recipe(run, state),
        "results": str(run.folder),
    }
    indent = " " * NAME_WIDTH
    lines = []
    for name, text in told.items():
        lines += textwrap.wrap(
            f"{name:<{NAME_WIDTH}}{text}",
            COLUMNS,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def describe_data(name: str, train: Sequence[Sample], val: Sequence[Sample]) -> str:
    """Return the name and the counts of a dataset."""
    num_objects = table_of(train).num_objects
    labels, background = int(num_objects.sum()), int((num_objects == 0).sum())
    without = f", {background:,} of them without" if background else ""
    images = f"{count(len(train), 'image')} with {count(labels, 'label')}{without}"
    return f"{name}: {images}; {count(len(val), 'image')} to validate with"


def describe_model(config: TrainConfig, state: TrainState) -> str:
    """Return the name and the size of a model."""
    model, size = state.model, config.image_size
    name = Path(config.cfg or config.weights or state.model.head.task.model).name
    gflops = count_gflops(plan_layers(model.spec), size, folded=True)
    return ", ".join(
        [
            name,
            count(model.spec.num_classes, "class", "classes"),
            count(len(model.spec.layers), "layer"),
            count(count_parameters(model), "parameter"),
            f"{gflops:.3g} GFLOPs at {size} px",
        ]
    )


def describe_means(state: TrainState) -> str:
    """Return the device, and in which way it computes."""
    execution = state.execution
    words = [execution.dtype, execution.layout, "compiled" if execution.compiled else "eager"]
    for name, means in state.means.items():
        if name != "compiled":
            words.append(f"{MEANS.get(name, name)} {means}")
    return f"{backend.device.describe(state.device)}; {', '.join(words)}"


def describe_loader(config: TrainConfig) -> str:
    """Return how many loader workers there are."""
    workers = loader_workers(config.workers, config.device)
    return f"{workers or 'no'} loader {'worker' if workers == 1 else 'workers'}"


def describe_recipe(run: Run, state: TrainState) -> str:
    """Return optimizer, learning rate, batch and length."""
    config, hyp = run.config, run.hyp
    together = config.batch_size * state.schedule.accumulate
    update = f" ({together} per update)" if state.schedule.accumulate > 1 else ""
    return ", ".join(
        [
            config.optimizer,
            f"learning rate {hyp.lr0:g} to {hyp.lr0 * hyp.lrf:g}",
            f"batch {config.batch_size}{update}",
            count(config.epochs, "epoch"),
            f"seed {config.seed}",
        ]
    )
