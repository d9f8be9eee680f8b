"""The training of one trial, in a process of its own.

Before: `search.py` has its values and a device. After: its results.csv, epoch by epoch.
"""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from utils.cli.document import as_document
from utils.cli.flags import as_words
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import AUTO, TrainConfig
from utils.errors import UserError
from utils.evolution.records import TrialRecord
from utils.files.project import PROJECT
from utils.files.regular import read_text
from utils.files.yaml import write_yaml
from utils.processes.exit_status import STATUS_FILE
from utils.processes.process_family import ask_for_signal_when_parent_ends
from utils.processes.suspend import FILE_VARIABLE
from utils.report.results import read_results
from utils.state.files import StateFiles
from utils.tasks.table import TASKS, task_of_figures

METRICS = "metrics/"
MAX_LOG_BYTES = 2**26
SHOWN_LINES = 5
# What trials have of their own, or not at all; all other settings are the search's.
OWN = {
    "evolve", "hyp", "override", "project", "name", "exist_ok", "resume", "suspend_file",
    "time_limit", "nproc", "device", "no_plots", "keep", "backend",
}  # fmt: skip
# A trial's task would put its own default in their place if they were left out.
OF_TASKS = {name for task in TASKS.values() for name in task.defaults}


class TrialRun:
    """A trial's folder, and its process while it trains.

    Attributes:
        folder: of its run.
        log: what it prints.
        is_hopeless: it was asked to end because others are better.

    Args:
        folder: of all trials.
    """

    def __init__(self, folder: Path, record: TrialRecord) -> None:
        self.record = record
        name = f"trial-{record.number:04d}"
        self.folder = folder / name
        self._hyp, self.log = folder / f"{name}.yaml", folder / f"{name}.log"
        self.is_hopeless = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        config: TrainConfig,
        hyp: Hyperparameters,
        backend: str,
        device: str,
        environment: Mapping[str, str],
    ) -> None:
        """Begin to train on a device, or go on where an earlier process was stopped.

        Args:
            config: of the search.
            hyp: the hyper-parameters to begin with.
            environment: variables of the process, in addition to those of this one.
        """
        write_yaml(self._hyp, as_document(dataclasses.replace(hyp, **self.record.values)))
        own = TrainConfig(
            hyp=self._hyp, project=self.folder.parent, name=self.folder.name, exist_ok=True,
            resume=AUTO, device=device, no_plots=True, keep=1, backend=backend,
        )  # fmt: skip
        shared = as_words(config, leave_out=OWN, in_full=OF_TASKS)
        command = [sys.executable, "-u", str(PROJECT / "train.py"), *shared, *as_words(own)]
        variables = {**os.environ, **environment}
        for name in (STATUS_FILE, FILE_VARIABLE):  # of this process
            variables.pop(name, None)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,  # Ctrl-C is answered here
                preexec_fn=ask_for_signal_when_parent_ends,
            )

    @property
    def exit_code(self) -> int | None:
        """That of the process; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def ask_to_end(self) -> None:
        """Have the process save its state and end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)  # nothing for one that has ended

    def read_epochs(self) -> None:
        """Bring the record up to date with results.csv.

        Raises:
            UserError: the file cannot be read, or has the figures of no task.
        """
        path = self.folder / "results.csv"
        if not path.exists():
            return
        columns, rows = read_results(path)
        figures = {name.removeprefix(METRICS) for name in columns if name.startswith(METRICS)}
        task = task_of_figures(figures)
        if task is None:
            raise UserError(f"--evolve: {path} has none of the figures that a task is judged by")
        weights = {f"{METRICS}{name}": weight for name, weight in task.fitness.items()}
        fitness = [sum(weights[name] * row[name] for name in weights) for row in rows]
        self.record.fitness = fitness
        if any(not math.isnan(value) for value in fitness):
            best = max(range(len(rows)), key=lambda epoch: _or_least(fitness[epoch]))
            shown = [name for name in columns if name.startswith(("metrics/", "val/"))]
            self.record.figures = {name: rows[best][name] for name in shown}

    def last_lines(self) -> str:
        """Return the end of what the process printed."""
        try:
            lines = read_text(self.log, MAX_LOG_BYTES).splitlines()
        except (OSError, ValueError):
            return f"see {self.log}"
        return "\n".join(lines[-SHOWN_LINES:])

    def remove_weights(self, keep_best: bool) -> None:
        """Remove the states of a trial that has ended, or all of them but the best."""
        states = StateFiles(self.folder, keep=1)
        for path in states.folder.glob("*"):
            if not (keep_best and path == states.best):
                path.unlink(missing_ok=True)


def _or_least(value: float) -> float:
    return -1.0 if math.isnan(value) else value
