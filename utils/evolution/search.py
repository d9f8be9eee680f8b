"""The search of `train.py --evolve`: trials side by side until there are enough.

Before: flags and the hyper-parameters to begin with. After: `outputs.py` writes what was found.
"""

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
from utils.evolution.folder import command_to_go_on, open_folder
from utils.evolution.outputs import conclude_search, write_table
from utils.evolution.ranges import searched_ranges
from utils.evolution.records import (
    DONE,
    FAILED,
    PRUNED,
    RUNNING,
    TrialRecord,
    best_of,
    read_records,
    write_records,
)
from utils.evolution.sampling import Sampler
from utils.evolution.trial_run import TrialRun
from utils.processes.exit_status import EXIT_DONE
from utils.processes.launch import rank_variables, wanted_processes
from utils.processes.process_family import (
    ORPHAN_SECONDS,
    adopt_orphans,
    kill_descendants,
)
from utils.processes.suspend import StopRequests, Suspended
from utils.screen.lines import joined
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
    begin = {name: getattr(hyp, name) for name in ranges}
    sampler = Sampler(begin, ranges, config.epochs, config.seed)
    with RunLock() as lock:
        folder = open_folder(config, hyp, ranges, lock)
        found = count(len(ranges), "hyper-parameter")
        log.info("%s are searched; what is 0 in the file stays 0", found)
        records = read_records(folder, ranges)
        if records and not records[0].fitness:
            records[0].state = RUNNING  # once more: without it nothing else begins
        search = Search(config, hyp, folder, records, sampler, devices)
        adopt_orphans()
        try:
            with stop.saving_at_interrupt():
                search.run(stop)
        finally:
            kill_descendants()
        conclude_search(folder, hyp, records)


def devices_of(config: TrainConfig) -> list[str]:
    """Return a device for each trial that runs at the same time."""
    number = wanted_processes(config)
    named = config.device.split(",")
    return named if len(named) == number else [config.device] * number


class Search:
    """Trials that run side by side, one per device.

    Args:
        records: of the trials so far; those to come are added.
        devices: a name may repeat.
    """

    def __init__(
        self,
        config: TrainConfig,
        hyp: Hyperparameters,
        folder: Path,
        records: list[TrialRecord],
        sampler: Sampler,
        devices: Sequence[str],
    ) -> None:
        self._config, self._hyp, self._folder = config, hyp, folder
        self._records, self._sampler = records, sampler
        self._backend = select.choose(config.backend)
        self._environment = dict(rank_variables(len(devices)))
        del self._environment["WORLD_SIZE"]  # each trial is a run of its own
        self._free = list(devices)
        self._running: list[tuple[TrialRun, str]] = []
        self._pending: list[TrialRecord] = []  # that an earlier process did not end

    def run(self, stop: StopRequests) -> None:
        """Run trials until there are as many as asked for."""
        for record in self._records:
            self._sampler.take_back(record)
        self._pending = [record for record in self._records if record.state == RUNNING]
        while True:
            if cause := stop.cause():
                self._suspend(cause, stop.interrupted)
            while self._free and (following := self._next()) is not None:
                self._start(following)
            if not self._running:
                return
            time.sleep(POLL_SECONDS)
            for run, device in [pair for pair in self._running if self._has_ended(pair[0])]:
                self._running.remove((run, device))
                self._free.append(device)
                self._end(run)

    def _next(self) -> TrialRecord | None:
        """Return a trial to train; None when there are enough."""
        if self._pending:
            return self._pending.pop(0)
        number = len(self._records)
        if number >= self._config.evolve or (number and not self._has_begun_well()):
            return None
        self._records.append(TrialRecord(number, self._sampler.ask(number)))
        write_records(self._folder, self._records)
        return self._records[-1]

    def _has_begun_well(self) -> bool:
        """Return whether the first trial finished an epoch: a failure before that would recur."""
        return bool(self._records[0].fitness)

    def _start(self, record: TrialRecord) -> None:
        run, device = TrialRun(self._folder / "trials", record), self._free.pop(0)
        run.start(self._config, self._hyp, self._backend, device, self._environment)
        self._running.append((run, device))

    def _has_ended(self, run: TrialRun) -> bool:
        """Look at a trial that runs; one that is to be pruned is asked to end."""
        code = run.exit_code  # before results.csv, which the process may write meanwhile
        epochs = len(run.record.fitness)
        run.read_epochs()
        if code is None:
            has_more = len(run.record.fitness) > epochs
            if has_more and not run.is_hopeless and self._sampler.report(run.record):
                run.is_hopeless = True
                run.ask_to_end()
            return False
        if code == EXIT_DONE and run.record.fitness:
            run.record.state = DONE
        else:
            run.record.state = PRUNED if run.is_hopeless else FAILED
        return True

    def _end(self, run: TrialRun) -> None:
        """Keep what a trial found, and of its weights those of the best."""
        record = run.record
        self._sampler.tell(record)
        write_records(self._folder, self._records)
        write_table(self._folder, self._hyp, self._records)
        best = best_of(self._records)
        log.info("%s", describe_trial(record, self._config.evolve, best))
        for other in self._records:
            if other.state != RUNNING:
                TrialRun(self._folder / "trials", other).remove_weights(keep_best=other is best)
        last = [record.state for record in self._records if record.state != RUNNING][-FAILURES:]
        if record.state == FAILED and (record.number == 0 or last == [FAILED] * FAILURES):
            what = f"trial {record.number + 1} has failed, see {run.log}"
            raise UserError(f"--evolve: {what}:\n{run.last_lines()}")

    def _suspend(self, cause: str, by_hand: bool) -> None:
        """Have all trials save their states, and end."""
        for run, _ in self._running:
            run.ask_to_end()
        deadline = time.monotonic() + ORPHAN_SECONDS
        while time.monotonic() < deadline and any(
            run.exit_code is None for run, _ in self._running
        ):
            time.sleep(POLL_SECONDS)
        done = count(sum(record.state != RUNNING for record in self._records), "trial")
        raise Suspended(
            f"the search stops after {done}: {cause}; go on with {command_to_go_on()}", by_hand
        )


def describe_trial(record: TrialRecord, number: int, best: TrialRecord | None) -> str:
    """Return a line about a trial that has ended."""
    parts = [f"trial {record.number + 1}/{number}", f"fitness {record.best:.4f}"]
    if record.state != DONE:
        parts.append(f"{record.state} in epoch {len(record.fitness) + 1}")
    if best is not None:
        parts.append(f"best {best.best:.4f} of trial {best.number + 1}")
    return joined(parts)
