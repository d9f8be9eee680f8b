"""Loggers for TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import logging
import math
import os
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from duet.utils.optional import import_optional
from duet.utils.regular_files import read_bytes
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


FOLDER = "duet.folder"  # tag for finding a folder's run again
STORE = "MLFLOW_TRACKING_URI"
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]")  # MLflow rejects the colon in mAP_0.5:0.95


class MlflowLogger:
    """Writes parameters, metrics and plots; a resumed run continues the same MLflow run."""

    def __init__(self) -> None:
        self._package = import_optional("mlflow", "--loggers mlflow")
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # silence logs about its tables

    def run_begins(self, event: RunBegins) -> None:
        project = Path(event.settings["project"]).absolute()
        store = os.environ.get(STORE, f"sqlite:///{project / 'mlflow.db'}")
        self._client = self._package.MlflowClient(tracking_uri=store)
        experiment = self._experiment(project)
        folder = str(event.folder.absolute())
        self._id = self._begun(experiment, folder) if event.resumed else None
        if self._id is None:
            run = self._client.create_run(
                experiment, run_name=event.folder.name, tags={FOLDER: folder}
            )
            self._id = run.info.run_id
            for name, value in {**event.settings, **event.hyperparameters}.items():
                self._client.log_param(self._id, name, value)

    def epoch_ends(self, event: EpochEnds) -> None:
        self._log(event.values, event.epoch)

    def run_ends(self, event: RunEnds) -> None:
        self._log({f"best/{name}": x for name, x in event.figures.items()}, event.best_epoch or 0)
        for path in event.plots:
            self._client.log_artifact(self._id, str(path), "plots")
        self._client.set_terminated(self._id)

    def close(self) -> None:
        """Do nothing: every call writes directly to the store."""

    def _experiment(self, project: Path) -> str:
        """Return the ID of a project's experiment, creating it if necessary."""
        found = self._client.get_experiment_by_name(project.name)
        if found is not None:
            return found.experiment_id
        place = None if STORE in os.environ else (project / "mlflow").as_uri()
        return self._client.create_experiment(project.name, artifact_location=place)

    def _begun(self, experiment: str, folder: str) -> Any:
        """Return the ID of a folder's newest run; None if there is none."""
        runs = self._client.search_runs([experiment], order_by=["attributes.start_time DESC"])
        ids = [run.info.run_id for run in runs if run.data.tags.get(FOLDER) == folder]
        return ids[0] if ids else None

    def _log(self, values: Any, step: int) -> None:
        for name, value in values.items():
            if math.isfinite(value):
                self._client.log_metric(self._id, _NOT_IN_NAMES.sub("-", name), value, step=step)


OFFLINE = "offline"
SILENT = {"silent": True, "quiet": True, "console": "off", "disable_git": True}
_PART = re.compile(r"(?:offline-)?run-\d+_\d+-(\w+)(?:-\d+)?")  # time, ID, number within a second


class WandbLogger:
    """Writes to a run's folder wandb; a resumed run continues under its ID."""

    def __init__(self) -> None:
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
