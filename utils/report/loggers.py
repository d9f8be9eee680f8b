"""Loggers for TensorBoard and Weights & Biases."""

import math
import os
import re
from pathlib import Path

import cv2
import numpy as np

from duet.utils.files.regular import read_bytes
from duet.utils.optional import import_optional
from duet.utils.report.events import EpochEnds, RunBegins, RunEnds

_NOT_IN_TAGS = re.compile(r"[^-/\w.]")


class TensorBoardLogger:
    """Writes event files to a run's folder tensorboard."""

    def __init__(self) -> None:
        self._package = import_optional("tensorboardX", "--loggers tensorboard")

    def run_begins(self, event: RunBegins) -> None:
        self._writer = self._package.SummaryWriter(
            str(event.folder / "tensorboard"),
            purge_step=event.epochs_done + 1,
            filename_suffix=f".{event.epochs_done}",  # two parts may start in the same second
        )

    def epoch_ends(self, event: EpochEnds) -> None:
        for name, value in event.values.items():
            if math.isfinite(value):
                # The package replaces them too, but logs it each time.
                self._writer.add_scalar(_NOT_IN_TAGS.sub("_", name), value, event.epoch)
        self._writer.flush()

    def run_ends(self, event: RunEnds) -> None:
        for path in event.plots:
            image = cv2.imdecode(np.frombuffer(read_bytes(path), np.uint8), cv2.IMREAD_COLOR)
            if image is not None:
                epoch = event.best_epoch or 0
                self._writer.add_image(path.name, image[..., ::-1], epoch, dataformats="HWC")

    def close(self) -> None:
        self._writer.close()


OFFLINE = "offline"
SILENT = {"silent": True, "quiet": True, "console": "off", "disable_git": True}
_PART = re.compile(r"(?:offline-)?run-\d+_\d+-(\w+)(?:-\d+)?")  # time, ID, number within a second


class WandbLogger:
    """Writes to a run's folder wandb; a resumed run continues under its ID."""

    def __init__(self) -> None:
        os.environ["WANDB_ERROR_REPORTING"] = "false"  # no telemetry
        self._package = import_optional("wandb", "--loggers wandb")

    def run_begins(self, event: RunBegins) -> None:
        mode = os.environ.get("WANDB_MODE", OFFLINE)
        self._run = self._package.init(
            project=Path(event.settings["project"]).name,
            name=event.folder.name,
            id=_id_of(event.folder) if event.resumed else None,
            resume="allow" if event.resumed and mode != OFFLINE else None,
            dir=str(event.folder),
            mode=mode,
            config={**event.settings, "hyperparameters": dict(event.hyperparameters)},
            settings=self._package.Settings(**SILENT),
        )

    def epoch_ends(self, event: EpochEnds) -> None:
        finite = {name: value for name, value in event.values.items() if math.isfinite(value)}
        self._run.log(finite, step=event.epoch)

    def run_ends(self, event: RunEnds) -> None:
        self._run.summary.update({f"best/{name}": x for name, x in event.figures.items()})
        if event.best_epoch is not None:
            self._run.summary["best/epoch"] = event.best_epoch
        self._run.log({path.stem: self._package.Image(str(path)) for path in event.plots})

    def close(self) -> None:
        self._run.finish()


def _id_of(folder: Path) -> str | None:
    """Return the ID of the wandb run in a folder; None if there is none."""
    names = [path.name for path in (folder / "wandb").glob("*run-*")]
    ids = [found[1] for found in map(_PART.fullmatch, sorted(names)) if found]
    return ids[-1] if ids else None


LOGGERS = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger}  # by name in --loggers
