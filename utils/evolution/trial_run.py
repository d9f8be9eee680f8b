"""The training of one trial, in a process of its own."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from utils.cli.document import as_document
from utils.cli.flags import as_words
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import AUTO, TrainConfig
from utils.errors import UserError
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
    "evolve", "storage", "hyp", "override", "project", "name", "exist_ok", "resume",
    "suspend_file", "time_limit", "nproc", "device", "no_plots", "keep", "backend",
}  # fmt: skip
# A trial's task would put its own default in their place if they were left out.
OF_TASKS = {name for task in TASKS.values() for name in task.defaults}


class TrialRun:
    """A trial's folder, and its process while it trains.

    Attributes:
        log: what it prints.
        fitness: of each epoch so far; NaN where there is none.
        figures: of its best epoch, by column.
        is_hopeless: it was asked to end because others are better.

    Args:
        folder: of its run.
        trial: Optuna's; it gets the fitness of each epoch.
        reported: epochs whose fitness it has, from an earlier process.
    """

    def __init__(self, folder: Path, trial: Any, reported: Collection[int] = ()) -> None:
        self.folder, self.trial, self.device = folder, trial, ""
        self._reported = reported
        self._hyp, self.log = folder.with_suffix(".yaml"), folder.with_suffix(".log")
        self.fitness: list[float] = []
        self.figures: Mapping[str, float] = {}
        self.is_hopeless = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def best(self) -> float:
        """The best epoch's fitness; 0 without any."""
        return max((value for value in self.fitness if value > 0), default=0.0)

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
        self.device = device
        self.folder.mkdir(parents=True, exist_ok=True)
        write_yaml(self._hyp, as_document(dataclasses.replace(hyp, **self.trial.params)))
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
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,  # Ctrl-C is answered here
                preexec_fn=ask_for_signal_when_parent_ends,
            )  # fmt: skip

    @property
    def exit_code(self) -> int | None:
        """That of the process; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def ask_to_end(self) -> None:
        """Have the process save its state and end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)  # nothing for one that has ended

    def read_epochs(self) -> bool:
        """Bring the trial up to date with results.csv; return whether it has more epochs.

        Raises:
            UserError: the file cannot be read, or has the figures of no task.
        """
        path = self.folder / "results.csv"
        if not path.exists():
            return False
        columns, rows = read_results(path)
        task = task_of_figures({x.removeprefix(METRICS) for x in columns if x.startswith(METRICS)})
        if task is None:
            raise UserError(f"--evolve: {path} has none of the figures that a task is judged by")
        weights = {f"{METRICS}{name}": weight for name, weight in task.fitness.items()}
        before = len(self.fitness)
        self.fitness = [sum(weights[name] * row[name] for name in weights) for row in rows]
        known = [value for value in self.fitness if not math.isnan(value)]
        if known:
            best = rows[self.fitness.index(max(known))]
            shown = [name for name in columns if name.startswith((METRICS, "val/"))]
            self.figures = {name: best[name] for name in shown}
        for epoch, value in enumerate(self.fitness[before:], before):
            if not math.isnan(value) and epoch not in self._reported:
                self.trial.report(value, epoch)
        return len(self.fitness) > before

    def last_lines(self) -> str:
        """Return the end of what the process printed."""
        try:
            lines = read_text(self.log, MAX_LOG_BYTES).splitlines()
        except (OSError, ValueError):
            return f"see {self.log}"
        return "\n".join(lines[-SHOWN_LINES:])


def remove_weights(folder: Path, keep_best: bool) -> None:
    """Remove the states of a trial that has ended, or all of them but the best."""
    states = StateFiles(folder, keep=1)
    for path in states.folder.glob("*"):
        if not (keep_best and path == states.best):
            path.unlink(missing_ok=True)
