"""The events of a run, and the loggers of --loggers that receive them besides the run's files.

A class of your own that has the methods of `RunLogger` is one: `--loggers mymodule:MyLogger`, where
Python finds mymodule; it is made without arguments.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from duet.utils.errors import UserError
from duet.utils.wings import load_wings

WINGS = (
    "duet.utils.report.loggers",
)  # packages with more loggers, each in a table LOGGERS by name
METHODS = ("run_begins", "epoch_ends", "run_ends", "close")

log = logging.getLogger("train")


class RunBegins(NamedTuple):
    """A run begins, or goes on after an interruption."""

    folder: Path  # of the run; its name is that of the run
    settings: Mapping[str, Any]  # as opt.yaml has them
    hyperparameters: Mapping[str, Any]  # as hyp.yaml has them
    class_names: Sequence[str]
    epochs_done: int  # the epoch behind them may be sent a second time
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


def make_loggers(names: Sequence[str]) -> Loggers:
    """Make the loggers of --loggers.

    Raises:
        UserError: a name is none, a package is absent, or a class has not all methods.
    """
    return Loggers({name: _make(name, _class_of(name)) for name in names})


def check_loggers(names: Sequence[str]) -> None:
    """Raise UserError for what `make_loggers` refuses, without an instance of a user's class."""
    for name in names:
        kind = _class_of(name)
        if ":" not in name:
            _make(name, kind)


def _make(name: str, kind: Any) -> RunLogger:
    try:
        logger: RunLogger = kind()
    except UserError:
        raise
    except Exception as error:  # of a class that is not ours
        raise UserError(f"--loggers {name}: {type(error).__name__}: {error}") from error
    return logger


def _class_of(name: str) -> Any:
    """Return the class that module:Class names, or that of a known package."""
    module, separator, attribute = name.partition(":")
    if not separator:
        known = {key: kind for wing in load_wings(WINGS) for key, kind in wing.LOGGERS.items()}
        if name not in known:
            accepted = ", ".join([*known, "module:Class of your own"])
            raise UserError(f"--loggers {name}; accepted: {accepted}")
        return known[name]
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a module that is not ours may raise any
        what = f"{type(error).__name__}: {error}"
        raise UserError(
            f"--loggers {name}: {what}; PYTHONPATH has the folders of modules"
        ) from error
    if missing := [method for method in METHODS if not callable(getattr(kind, method, None))]:
        raise UserError(
            f"--loggers {name} lacks {', '.join(missing)}; utils/report/events.py shows the "
            "methods of a logger"
        )
    return kind


class Loggers:
    """Some loggers, by name."""

    def __init__(self, loggers: Mapping[str, RunLogger] | None = None) -> None:
        self._loggers = dict(loggers or {})

    def run_begins(self, event: RunBegins) -> None:
        self._send("run_begins", event)

    def epoch_ends(self, event: EpochEnds) -> None:
        self._send("epoch_ends", event)

    def run_ends(self, event: RunEnds) -> None:
        self._send("run_ends", event)

    def close(self) -> None:
        self._send("close")
        self._loggers.clear()

    def _send(self, method: str, *event: Any) -> None:
        """Pass an event to all; a full disk or an unreachable server must not end a training."""
        for name, logger in list(self._loggers.items()):
            try:
                getattr(logger, method)(*event)
            except Exception as error:
                del self._loggers[name]
                reason = f"{type(error).__name__}: {error}"
                log.warning("--loggers %s: %s; nothing more is sent to it", name, reason)
