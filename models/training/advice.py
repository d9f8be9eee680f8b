"""Advice in the log of a training: a better recipe, missing classes, and more epochs."""

import dataclasses
from pathlib import Path

import numpy as np

from duet.models.training.step import TrainState
from duet.utils.cli.flags import as_words
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS
from duet.utils.cli.train_config import TrainConfig
from duet.utils.data.sources.samples import table_of
from duet.utils.project import command_line
from duet.utils.state.job import Job, TrainData
from duet.utils.strengths import FEW_IMAGES
from duet.utils.text import count, printable

LAST_PART = 0.1  # of the epochs: a best epoch in it is a sign that more would help
FEWEST_EPOCHS = 10  # that have such a part
SHOWN_CLASSES = 5


def advice_at_start(job: Job) -> list[str]:
    """Return advice on a new run; none for a resumed one, which keeps its recipe.

    Few images, trained from weights with the public recipe of detectors, end higher with --hyp
    small: docs/en/small-data.md has the measurements.
    """
    if job.point is not None:
        return []
    config, number = job.config, len(job.data.train)
    is_public = config.hyp == DEFAULT_HYPERPARAMETERS and not config.override
    is_small = is_public and config.weights and number <= FEW_IMAGES
    better = [f"{count(number, 'image')}: --hyp small usually ends higher"] if is_small else []
    return better + missing_classes(job.data)


def missing_classes(data: TrainData) -> list[str]:
    """Return a line per split that lacks objects of some classes."""
    lines = []
    for split, samples, what in (
        ("train", data.train, "which cannot be learned"),
        ("val", data.val, "which the metrics leave out"),
    ):
        found = np.bincount(table_of(samples).class_index, minlength=len(data.class_names))
        missing = [name for name, number in zip(data.class_names, found, strict=True) if not number]
        if missing:
            more = len(missing) - SHOWN_CLASSES
            named = ", ".join(map(printable, missing[:SHOWN_CLASSES]))
            named += f" and {more} more" if more > 0 else ""
            lines.append(f"{split} has no object of {named}, {what}")
    return lines


def advice_at_end(config: TrainConfig, state: TrainState, last: Path) -> list[str]:
    """Return the command for more epochs if the last ones were still improving.

    last: the last weights.
    """
    if state.last_update < 0:
        return [
            f"nothing was learned: an update takes {state.schedule.accumulate} batches, "
            f"and the run had {state.batch_number}; "
            f"give more --epochs, or --override nbs={config.batch_size}"
        ]
    is_whole = state.epoch == config.epochs >= FEWEST_EPOCHS
    if not is_whole or config.no_val or state.best_epoch <= (1 - LAST_PART) * config.epochs:
        return []
    more = dataclasses.replace(
        config, weights=str(last), cfg="", cutoff=0, task="", remap_classes=False, resume="",
        exist_ok=False, suspend_file="", time_limit=None,
    )  # fmt: skip
    return [
        f"epoch {state.best_epoch} of {config.epochs} was the best: more epochs may help:",
        f"  {command_line('train', *as_words(more))}",
    ]
