"""The search of `train.py --evolve`: each trial is a training in a separate process."""

import contextlib
import csv
import dataclasses
import logging
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duet.backend import select
from duet.backend.processes import this_process
from duet.utils.cli.hyperparameters import Hyperparameters, override_word
from duet.utils.cli.train_config import FREE, TrainConfig, run_settings
from duet.utils.errors import UserError
from duet.utils.evolution.study import FIGURES, SearchStudy, searched_ranges
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.run_folder import RunLock
from duet.utils.files.yaml_files import yaml_text
from duet.utils.processes.exit_status import EXIT_DONE, ORPHAN_SECONDS, STATUS_FILE
from duet.utils.processes.launch import rank_variables, wanted_processes
from duet.utils.processes.start import program_words
from duet.utils.processes.suspend import FILE_VARIABLE, StopRequests, Suspended
from duet.utils.project import from_here
from duet.utils.report.plots.results import plot_evolution
from duet.utils.report.results import read_results
from duet.utils.system.children import (
    ask_for_signal_when_parent_ends,
    child_options,
)
from duet.utils.system.machine import ending_children
from duet.utils.tasks import Task
from duet.utils.text import count, say

PROJECT_FOLDER = Path("runs/evolve")  # replaces the default of --project
STUDY_FILE, TABLE_FILE = "search.journal", "evolve.csv"
FIGURE_FILE, BEST_FILE = "evolve.png", "hyp_evolve.yaml"
WORDS = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}
POLL_SECONDS = 0.2
# Settings that may change during a search; the study compares the values of --hyp.
CHANGEABLE = FREE | {"evolve", "storage", "hyp", "override"}
# Flags of each trial instead of the search's; its folder, device and values follow.
OF_A_TRIAL = ("--evolve=0", "--storage=", "--suspend-file=", "--exist-ok", "--resume=auto",
    "--nproc=0", "--noplots", "--keep=1")  # fmt: skip

log = logging.getLogger("evolve")


def evolve(task: Task, config: TrainConfig, hyp: Hyperparameters, stop: StopRequests) -> None:
    """Search hyper-parameters in --evolve trainings, and write the best ones; or Suspended."""
    if this_process().world_size > 1:
        raise UserError("--evolve starts its own trainings; start it without a launcher")
    is_default = config.project == TrainConfig().project
    folder = (PROJECT_FOLDER if is_default else config.project) / config.name
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    with RunLock() as lock:
        lock.take(folder)
        search = Search(task, config, hyp, folder)
        log.info("search in %s; logs of its trainings: trials/*.log", from_here(folder))
        with ending_children(), stop.saving_at_interrupt():
            search.run(stop)
        search.conclude()


@dataclasses.dataclass
class Training:
    trial: Any  # Optuna's, to which the fitness of each epoch is reported
    folder: Path
    device: str
    process: subprocess.Popen[bytes]
    reported: int  # number of epochs looked at
    is_hopeless: bool = False  # pruned because others are better

    def epochs(self, weights: Mapping[str, float]) -> list[tuple[float, dict[str, float]]]:
        """Return the fitness and the metrics of each epoch in results.csv; weights: by metric."""
        path = self.folder / "results.csv"
        columns, rows = read_results(path) if path.exists() else ([], [])
        shown = [name for name in columns if name.startswith(("metrics/", "val/"))]
        fitness = [sum(x * row[f"metrics/{name}"] for name, x in weights.items()) for row in rows]
        return [
            (x, {name: row[name] for name in shown}) for x, row in zip(fitness, rows, strict=True)
        ]

    def report(self, weights: Mapping[str, float]) -> bool:
        """Report the fitness of new epochs to Optuna; return whether there are any."""
        new = self.epochs(weights)[self.reported :]
        for epoch, (fitness, _) in enumerate(new, start=self.reported):
            if not math.isnan(fitness):
                self.trial.report(fitness, epoch)
        self.reported += len(new)
        return bool(new)


class Search:
    """Trials that run concurrently, one per device; a device may repeat."""

    def __init__(self, task: Task, config: TrainConfig, hyp: Hyperparameters, folder: Path) -> None:
        self._config, self._hyp, self._folder = config, hyp, folder
        self._weights = task.fitness
        ranges = searched_ranges(hyp, task.unused)
        settings = run_settings(config)
        self._study = SearchStudy(
            Path(config.storage) if config.storage else folder / STUDY_FILE,
            {name: getattr(hyp, name) for name in ranges},
            ranges,
            {name: value for name, value in settings.items() if name not in CHANGEABLE},
        )
        found = count(len(ranges), "hyper-parameter")
        log.info("searching %s; those that are 0 in the file stay 0", found)
        number = wanted_processes(config.device, config.nproc)
        named = config.device.split(",")
        self._free = named if len(named) == number else [config.device] * number
        self._environment = {**os.environ, **rank_variables(number)}
        for name in ("WORLD_SIZE", STATUS_FILE, FILE_VARIABLE):  # each trial is an independent run
            self._environment.pop(name, None)
        self._running: list[Training] = []
        # Trials that an earlier process of this search started here and did not finish.
        self._pending = [
            trial for trial in self._study.trials("RUNNING") if self._place(trial.number).exists()
        ]

    def run(self, stop: StopRequests) -> None:
        """Run trials until there are as many as requested."""
        while True:
            if (cause := stop.cause()) is not None:
                self._suspend(cause, stop.interrupted)
            while self._free and (
                self._pending or len(self._study.trials(*WORDS, "RUNNING")) < self._config.evolve
            ):
                self._running.append(self._start(self._free.pop(0)))
            if not self._running:
                return
            time.sleep(POLL_SECONDS)
            for run in [run for run in self._running if self._has_ended(run)]:
                self._running.remove(run)
                self._free.append(run.device)
                self._end(run)

    def _start(self, device: str) -> Training:
        """Start a new trial, or continue one that an earlier process left."""
        unfinished = self._pending.pop(0) if self._pending else None
        trial = self._study.begin_trial(unfinished)
        folder = self._place(trial.number)
        folder.mkdir(exist_ok=True)
        backend = select.choose(self._config.backend)
        own = [f"--project={folder.parent}", f"--name={folder.name}", f"--device={device}"]
        own += [f"--backend={backend}", "--override"]
        own += [override_word(*pair) for pair in self._values_of(trial).items()]
        with folder.with_suffix(".log").open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-u", *program_words(), *sys.argv[1:], *OF_A_TRIAL, *own],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                env=self._environment,
                **child_options(ask_for_signal_when_parent_ends),
            )  # fmt: skip
        known = unfinished.intermediate_values if unfinished is not None else {}
        return Training(trial, folder, device, process, max(known, default=-1) + 1)

    def _values_of(self, trial: Any) -> dict[str, Any]:
        return dataclasses.asdict(dataclasses.replace(self._hyp, **trial.params))

    def _place(self, number: int) -> Path:
        return self._folder / "trials" / f"trial-{number:04d}"

    def _has_ended(self, run: Training) -> bool:
        """Update a running trial, and stop it if it is to be pruned."""
        code = run.process.poll()  # before results.csv, to which the process may still write
        has_more = run.report(self._weights)
        if code is None and has_more and not run.is_hopeless and run.trial.should_prune():
            run.is_hopeless = True
            run.process.send_signal(signal.SIGTERM)
        return code is not None

    def _end(self, run: Training) -> None:
        number = run.trial.number
        has_epochs = any(one.reported for one in (run, *self._running))
        if not has_epochs and not self._study.trials("COMPLETE", "PRUNED"):
            # The failure would recur in each trial; the same command trains this one again.
            log_file = run.folder.with_suffix(".log")
            raise UserError(f"--evolve: trial {number + 1} has failed, see {log_file}")
        is_done = run.process.returncode == EXIT_DONE and run.reported > 0
        state = "COMPLETE" if is_done else "PRUNED" if run.is_hopeless else "FAIL"
        scored = [epoch for epoch in run.epochs(self._weights) if not math.isnan(epoch[0])]
        fitness, figures = max(scored, key=lambda epoch: epoch[0], default=(0.0, {}))
        self._study.end_trial(run.trial, state, fitness, figures)
        self._write_table()
        best = self._study.best()
        log.info(
            "trial %d/%d %s after %s, fitness %.4f%s",
            number + 1, self._config.evolve, WORDS[state], count(run.reported, "epoch"), fitness,
            f"; best {best.value:.4f} of trial {best.number + 1}" if best else "",
        )  # fmt: skip
        for trial in self._study.trials(*WORDS):  # only the best weights of the best one stay
            for path in self._place(trial.number).glob("weights/*"):
                if best is None or (trial.number, path.stem) != (best.number, "best"):
                    path.unlink(missing_ok=True)

    def _suspend(self, cause: str, by_hand: bool) -> None:
        """Let all trials save their states and end."""
        for run in self._running:
            run.process.send_signal(signal.SIGTERM)  # no effect if it has ended
        for run in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(ORPHAN_SECONDS)
        done = count(len(self._study.trials(*WORDS)), "trial")
        again = shlex.join([sys.executable, *program_words(), *sys.argv[1:]])
        raise Suspended(f"search suspended after {done}: {cause}; continue with {again}", by_hand)

    def _write_table(self) -> None:
        """Write a row per trial with epochs: YOLOv5's columns, then number, state and fitness."""
        rows = [
            {
                **trial.user_attrs[FIGURES],
                **self._values_of(trial),
                "trial": trial.number + 1,
                "state": WORDS[trial.state.name],
                "fitness": max(trial.intermediate_values.values()),
            }
            for trial in self._study.trials(*WORDS)
            if trial.user_attrs.get(FIGURES)
        ]
        with atomic_text_file(self._folder / TABLE_FILE) as file:
            writer = csv.DictWriter(file, rows[0] if rows else ())
            writer.writeheader()
            writer.writerows(rows)

    def conclude(self) -> None:
        best, done = self._study.best(), self._study.trials("COMPLETE")
        if best is None:
            raise UserError(f"--evolve: no trial has finished; see {self._folder}/trials")
        figure, path = self._folder / FIGURE_FILE, self._folder / BEST_FILE
        values = {name: [trial.params[name] for trial in done] for name in best.params}
        plot_evolution(values, [trial.value for trial in done], figure)
        self._write_table()
        result = (
            f"best of {len(self._study.trials(*WORDS))}: trial {best.number + 1} with fitness "
            f"{best.value:.4f}; the first one had {done[0].value:.4f}"
        )
        with atomic_text_file(path) as file:
            file.write(f"# {result}\n{yaml_text(self._values_of(best))}")
        say(
            result,
            f"its hyper-parameters are in {from_here(path)}; train with --hyp {from_here(path)}",
            f"all trials in {from_here(self._folder / TABLE_FILE)} and {from_here(figure)}",
        )
