"""The loggers that --loggers names, told of each event; one that fails is left out."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from utils.errors import UserError
from utils.report.loggers.events import EpochEnds, RunBegins, RunEnds, RunLogger
from utils.report.loggers.packages import MlflowLogger, TensorBoardLogger, WandbLogger

LOGGERS: Mapping[str, Any] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
}
METHODS = ("run_begins", "epoch_ends", "run_ends", "close")

log = logging.getLogger("train")


def make_loggers(names: Sequence[str]) -> Loggers:
    """Make the loggers of --loggers.

    Raises:
        UserError: a name is none, a package is absent, or a class has not all methods.
    """
    return Loggers({name: _make(name) for name in names})


def check_loggers(names: Sequence[str]) -> None:
    """Raise UserError for what `make_loggers` refuses, without an instance of a user's class."""
    for name in names:
        if name in LOGGERS:
            _make(name)
        else:
            _class_of(name)


def _make(name: str) -> RunLogger:
    kind = LOGGERS.get(name) or _class_of(name)
    try:
        logger: RunLogger = kind()
    except UserError:
        raise
    except Exception as error:  # of a class that is not ours
        raise UserError(f"--loggers {name}: {type(error).__name__}: {error}") from error
    return logger


def _class_of(name: str) -> Any:
    """Return the class that module:Class names."""
    module, separator, attribute = name.partition(":")
    if not separator:
        known = ", ".join(LOGGERS)
        raise UserError(f"--loggers {name}; accepted: {known}, or module:Class of your own")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a module that is not ours may raise any
        what = f"{type(error).__name__}: {error}"
        raise UserError(
            f"--loggers {name}: {what}; PYTHONPATH has the folders of modules"
        ) from error
    missing = [method for method in METHODS if not callable(getattr(kind, method, None))]
    if missing:
        raise UserError(
            f"--loggers {name} lacks {', '.join(missing)}; utils/report/loggers/events.py says "
            "what a logger has"
        )
    return kind


class Loggers:
    """Some loggers, by name."""

    def __init__(self, loggers: Mapping[str, RunLogger] | None = None) -> None:
        self._loggers = dict(loggers or {})

    def run_begins(self, event: RunBegins) -> None:
        self._tell("run_begins", event)

    def epoch_ends(self, event: EpochEnds) -> None:
        self._tell("epoch_ends", event)

    def run_ends(self, event: RunEnds) -> None:
        self._tell("run_ends", event)

    def close(self) -> None:
        self._tell("close")
        self._loggers.clear()

    def _tell(self, method: str, *event: Any) -> None:
        """Pass an event to all; a full disk or an unreachable server must not end a training."""
        for name, logger in list(self._loggers.items()):
            try:
                getattr(logger, method)(*event)
            except Exception as error:
                del self._loggers[name]
                log.warning(
                    "--loggers %s: %s: %s; nothing more is sent to it",
                    name,
                    type(error).__name__,
                    error,
                )
