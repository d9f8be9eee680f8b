"""Events of a run, and the loggers of --loggers that receive them.

Any class with the methods of `RunLogger` can be a logger: `--loggers mymodule:MyLogger`, where
mymodule is importable; it is instantiated without arguments.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from duet.utils.errors import UserError
from duet.utils.files.json_files import Document
from duet.utils.optional import load_wings

WINGS = ("duet.utils.report.loggers",)  # packages with a table LOGGERS of loggers by name
METHODS = ("run_begins", "epoch_ends", "run_ends", "close")

log = logging.getLogger("train")


class RunBegins(NamedTuple):
    folder: Path  # the run's folder, named after the run
    settings: Document  # as in opt.yaml
    hyperparameters: Document  # as in hyp.yaml
    class_names: Sequence[str]
    epochs_done: int  # the next epoch may be sent a second time
    resumed: bool


class EpochEnds(NamedTuple):
    epoch: int  # from 1
    values: Mapping[str, float]  # results.csv values by column, without empty ones


class RunEnds(NamedTuple):
    best_epoch: int | None  # from 1; None if every metric was NaN
    figures: Mapping[str, float]  # the best epoch's metrics, named as in results.csv after metrics/
    plots: Sequence[Path]  # images in the run's folder
    weights: Sequence[Path]


class RunLogger(Protocol):
    """Receives the events of a run, on rank 0, in the training thread."""

    def run_begins(self, event: RunBegins) -> None:
        """Called before the first epoch."""

    def epoch_ends(self, event: EpochEnds) -> None:
        """Called after each epoch."""

    def run_ends(self, event: RunEnds) -> None:
        """Called after the last epoch."""

    def close(self) -> None:
        """Flush pending data; the last call, even if the run is interrupted."""


def make_loggers(names: Sequence[str]) -> Loggers:
    """Create the loggers of --loggers; UserError for an unknown name or an unusable class."""
    return Loggers({name: _make(name, _class_of(name)) for name in names})


def check_loggers(names: Sequence[str]) -> None:
    """Raise UserError as `make_loggers` would, without instantiating users' classes."""
    for name in names:
        kind = _class_of(name)
        if ":" not in name:
            _make(name, kind)


def _make(name: str, kind: Any) -> RunLogger:
    try:
        logger: RunLogger = kind()
    except UserError:
        raise
    except Exception as error:  # raised by third-party code
        raise UserError(f"--loggers {name}: {type(error).__name__}: {error}") from error
    return logger


def _class_of(name: str) -> object:
    module, separator, attribute = name.partition(":")
    if not separator:
        known = {key: kind for wing in load_wings(WINGS) for key, kind in wing.LOGGERS.items()}
        if name not in known:
            accepted = ", ".join([*known, "your own module:Class"])
            raise UserError(f"--loggers {name}; accepted: {accepted}")
        return known[name]
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # third-party modules may raise anything
        what = f"{type(error).__name__}: {error}"
        raise UserError(
            f"--loggers {name}: {what}; add the module's folder to PYTHONPATH"
        ) from error
    if missing := [method for method in METHODS if not callable(getattr(kind, method, None))]:
        raise UserError(
            f"--loggers {name} lacks {', '.join(missing)}; see utils/report/events.py for the "
            "methods of a logger"
        )
    return kind


class Loggers:
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

    def _send(self, method: str, *event: object) -> None:
        """Send an event to all; a full disk or unreachable server must not end a training."""
        for name, logger in list(self._loggers.items()):
            try:
                getattr(logger, method)(*event)
            except Exception as error:
                del self._loggers[name]
                reason = f"{type(error).__name__}: {error}"
                log.warning("--loggers %s: %s; this logger is disabled", name, reason)
