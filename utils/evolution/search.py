"""The search of `train.py --evolve`: trials side by side until there are enough."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from backend import select
from backend.processes import this_process
from backend.words import count
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import TrainConfig
from utils.errors import UserError
from utils.evolution.folder import command_to_go_on, conclude_search, open_folder, write_table
from utils.evolution.ranges import searched_ranges
from utils.evolution.study import SearchStudy
from utils.evolution.trial_run import TrialRun, remove_weights
from utils.processes.exit_status import EXIT_DONE
from utils.processes.launch import rank_variables, wanted_processes
from utils.processes.process_family import ORPHAN_SECONDS, adopt_orphans, kill_descendants
from utils.processes.suspend import StopRequests, Suspended
from utils.screen.progress import joined
from utils.state.lock import RunLock
from utils.tasks.of_flags import task_of_flags

POLL_SECONDS = 0.2
FAILURES = 5  # in a row, after which a search ends

log = logging.getLogger("evolve")


def evolve(config: TrainConfig, hyp: Hyperparameters, stop: StopRequests) -> None:
    """Search hyper-parameters in --evolve trainings, and write the best ones.

    Raises:
        UserError: the settings do not go together, Optuna is absent, or trials fail.
        Suspended: asked to stop; the same command goes on.
    """
    if this_process().world_size > 1:
        raise UserError("--evolve starts its trainings itself; leave the launcher out")
    devices = devices_of(config)
    ranges = searched_ranges(hyp, task_of_flags(vars(config)).unused)
    with RunLock() as lock:
        folder, study = open_folder(config, hyp, ranges, lock)
        found = count(len(ranges), "hyper-parameter")
        log.info("%s are searched; what is 0 in the file stays 0", found)
        search = Search(config, hyp, folder, study, devices)
        adopt_orphans()
        try:
            with stop.saving_at_interrupt():
                search.run(stop)
        finally:
            kill_descendants()
        conclude_search(folder, hyp, study)


def devices_of(config: TrainConfig) -> list[str]:
    """Return a device for each trial that runs at the same time."""
    number = wanted_processes(config.device, config.nproc)
    named = config.device.split(",")
    return named if len(named) == number else [config.device] * number


class Search:
    """Trials that run side by side, one per device; a name may repeat."""

    def __init__(
        self,
        config: TrainConfig,
        hyp: Hyperparameters,
        folder: Path,
        study: SearchStudy,
        devices: Sequence[str],
    ) -> None:
        self._config, self._hyp, self._folder, self._study = config, hyp, folder, study
        self._backend = select.choose(config.backend)
        self._environment = dict(rank_variables(len(devices)))
        del self._environment["WORLD_SIZE"]  # each trial is a run of its own
        self._free = list(devices)
        self._running: list[TrialRun] = []
        # Those that an earlier process of this search began here and did not end.
        self._pending = [
            trial for trial in study.trials("RUNNING") if self._place(trial.number).exists()
        ]
        self._has_begun_well = bool(study.trials("COMPLETE", "PRUNED"))
        self._failures = 0  # in a row

    def run(self, stop: StopRequests) -> None:
        """Run trials until there are as many as asked for."""
        while True:
            if (cause := stop.cause()) is not None:
                self._suspend(cause, stop.interrupted)
            while self._free and (run := self._next()) is not None:
                run.start(self._config, self._hyp, self._backend, self._free.pop(0),
                          self._environment)  # fmt: skip
                self._running.append(run)
            if not self._running:
                return
            time.sleep(POLL_SECONDS)
            for run in [run for run in self._running if self._has_ended(run)]:
                self._running.remove(run)
                self._free.append(run.device)
                self._end(run)

    def _next(self) -> TrialRun | None:
        """Return a trial to train; None when there are enough.

        The first one is alone until it has an epoch: a failure before that would recur.
        """
        if self._running and not self._has_begun_well:
            return None
        if self._pending:
            found = self._pending.pop(0)
            trial, place = self._study.take_up(found), self._place(found.number)
            return TrialRun(place, trial, found.intermediate_values)
        if len(self._study.trials("COMPLETE", "PRUNED", "RUNNING")) >= self._config.evolve:
            return None
        trial = self._study.ask()
        return TrialRun(self._place(trial.number), trial)

    def _place(self, number: int) -> Path:
        return self._folder / "trials" / f"trial-{number:04d}"

    def _has_ended(self, run: TrialRun) -> bool:
        """Look at a trial that runs; one that is to be pruned is asked to end."""
        code = run.exit_code  # before results.csv, which the process may write meanwhile
        has_more = run.read_epochs()
        self._has_begun_well |= bool(run.fitness)
        if code is None and has_more and not run.is_hopeless and run.trial.should_prune():
            run.is_hopeless = True
            run.ask_to_end()
        return code is not None

    def _end(self, run: TrialRun) -> None:
        """Keep what a trial found, and of its weights those of the best."""
        is_done = run.exit_code == EXIT_DONE and bool(run.fitness)
        state = "COMPLETE" if is_done else "PRUNED" if run.is_hopeless else "FAIL"
        self._failures = self._failures + 1 if state == "FAIL" else 0
        if self._has_begun_well:  # else the same command trains the trial again
            self._study.tell(run.trial, state, run.best, run.figures)
        write_table(self._folder, self._hyp, self._study)
        best = self._study.best()
        log.info("%s", self._describe(run, state))
        for trial in self._study.trials("COMPLETE", "PRUNED", "FAIL"):
            is_best = best is not None and trial.number == best.number
            remove_weights(self._place(trial.number), keep_best=is_best)
        if state == "FAIL" and (not self._has_begun_well or self._failures == FAILURES):
            what = f"trial {run.trial.number + 1} has failed, see {run.log}"
            raise UserError(f"--evolve: {what}:\n{run.last_lines()}")

    def _describe(self, run: TrialRun, state: str) -> str:
        parts = [f"trial {run.trial.number + 1}/{self._config.evolve}", f"fitness {run.best:.4f}"]
        if state != "COMPLETE":
            how = "pruned" if state == "PRUNED" else "failed"
            parts.append(f"{how} in epoch {len(run.fitness) + 1}")
        if (best := self._study.best()) is not None:
            parts.append(f"best {best.value:.4f} of trial {best.number + 1}")
        return joined(parts)

    def _suspend(self, cause: str, by_hand: bool) -> None:
        """Have all trials save their states, and end."""
        for run in self._running:
            run.ask_to_end()
        deadline = time.monotonic() + ORPHAN_SECONDS
        while time.monotonic() < deadline and any(run.exit_code is None for run in self._running):
            time.sleep(POLL_SECONDS)
        done = count(len(self._study.trials("COMPLETE", "PRUNED", "FAIL")), "trial")
        raise Suspended(
            f"the search stops after {done}: {cause}; go on with {command_to_go_on()}", by_hand
        )
