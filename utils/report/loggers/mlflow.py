"""A run of MLflow, in the store that MLFLOW_TRACKING_URI names or in PROJECT/mlflow.db."""

from __future__ import annotations

import logging
import math
import os
import re
from pathlib import Path
from typing import Any

from utils.optional import import_optional
from utils.report.loggers.events import EpochEnds, RunBegins, RunEnds

FOLDER = "duet.folder"  # the tag by which the run of a folder is found again
STORE = "MLFLOW_TRACKING_URI"
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]")  # MLflow refuses the colon of mAP_0.5:0.95


class MlflowLogger:
    """Writes parameters, metrics and plots; an interrupted run goes on in the same MLflow run."""

    def __init__(self) -> None:
        self._package = import_optional("mlflow", "--loggers mlflow")
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of its tables

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
        """Do nothing: each call has already written its rows to the store."""

    def _experiment(self, project: Path) -> str:
        """Return the id of the experiment of a project; make it when it is not there."""
        found = self._client.get_experiment_by_name(project.name)
        if found is not None:
            return found.experiment_id
        place = None if STORE in os.environ else (project / "mlflow").as_uri()
        return self._client.create_experiment(project.name, artifact_location=place)

    def _begun(self, experiment: str, folder: str) -> Any:
        """Return the id of the newest run of a folder; None if there is none."""
        runs = self._client.search_runs([experiment], order_by=["attributes.start_time DESC"])
        ids = [run.info.run_id for run in runs if run.data.tags.get(FOLDER) == folder]
        return ids[0] if ids else None

    def _log(self, values: Any, step: int) -> None:
        for name, value in values.items():
            if math.isfinite(value):
                self._client.log_metric(self._id, _NOT_IN_NAMES.sub("-", name), value, step=step)
