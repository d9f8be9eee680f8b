"""What a logger is told of a run: it begins, an epoch ends, it ends.

A class of your own that has these methods is one: `--loggers mymodule:MyLogger`, where Python finds
mymodule; it is made without arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class RunBegins(NamedTuple):
    """A run begins, or goes on after an interruption."""

    folder: Path  # of the run; its name is that of the run
    settings: Mapping[str, Any]  # as opt.yaml has them
    hyperparameters: Mapping[str, Any]  # as hyp.yaml has them
    class_names: Sequence[str]
    epochs_done: int  # the epoch behind them may be told a second time
    resumed: bool  # after an interruption


class EpochEnds(NamedTuple):
    """An epoch ends."""

    epoch: int  # from 1
    values: Mapping[str, float]  # of results.csv, by column; a column without a value is absent


class RunEnds(NamedTuple):
    """The run ends: all its epochs are done."""

    best_epoch: int | None  # from 1; None if no figure was a number
    figures: Mapping[str, float]  # of the best epoch, as results.csv names them behind metrics/
    plots: Sequence[Path]  # images in the run's folder
    weights: Sequence[Path]


class RunLogger(Protocol):
    """Takes the events of a run, on the first rank, in the thread that trains."""

    def run_begins(self, event: RunBegins) -> None:
        """Take what is known before the first epoch."""

    def epoch_ends(self, event: EpochEnds) -> None:
        """Take the figures of an epoch."""

    def run_ends(self, event: RunEnds) -> None:
        """Take the final figures of the run."""

    def close(self) -> None:
        """Write what is pending: the last call, also when the run is interrupted."""
