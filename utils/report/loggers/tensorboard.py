"""Events for TensorBoard: `tensorboard --logdir RUN/tensorboard` shows them."""

from __future__ import annotations

import math
import re

import cv2
import numpy as np

from utils.files.regular import read_bytes
from utils.optional import import_optional
from utils.report.loggers.events import EpochEnds, RunBegins, RunEnds

_NOT_IN_TAGS = re.compile(r"[^-/\w.]")


class TensorBoardLogger:
    """Writes event files into the folder tensorboard of a run."""

    def __init__(self) -> None:
        self._package = import_optional("tensorboardX", "--loggers tensorboard")

    def run_begins(self, event: RunBegins) -> None:
        self._writer = self._package.SummaryWriter(
            str(event.folder / "tensorboard"),
            purge_step=event.epochs_done + 1,
            filename_suffix=f".{event.epochs_done}",  # two parts may begin in one second
        )
        if not event.epochs_done:
            for title, values in (
                ("settings", event.settings),
                ("hyperparameters", event.hyperparameters),
            ):
                rows = [f"| {name} | {value} |" for name, value in values.items()]
                table = "\n".join(["| name | value |", "|---|---|", *rows])
                self._writer.add_text(title, table, 0)

    def epoch_ends(self, event: EpochEnds) -> None:
        for name, value in event.values.items():
            if math.isfinite(value):
                # The package replaces other characters too, and says so each time.
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
