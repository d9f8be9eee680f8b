"""A run: its folder, and its records so far."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from duet.backend.processes import this_process
from duet.utils.atomic_files import remove_unfinished
from duet.utils.cli.run_config import as_document
from duet.utils.cli.train_config import run_settings
from duet.utils.processes.start import program_words
from duet.utils.processes.suspend import FILE_VARIABLE
from duet.utils.report.events import EpochEnds, Loggers, RunBegins, RunEnds, make_loggers
from duet.utils.report.results import Results
from duet.utils.run_folder import create_run_folder
from duet.utils.state.files import StateFiles
from duet.utils.state.job import Job
from duet.utils.state.progress import Limits
from duet.utils.state.resume import RECORD, ResumePoint
from duet.utils.state.work_record import WorkRecord


@dataclass(frozen=True)
class Run:
    """A job with its folder and records."""

    job: Job
    folder: Path
    results: Results = field(default_factory=Results)
    work: WorkRecord = field(default_factory=WorkRecord)
    loggers: Loggers = field(default_factory=Loggers)

    @property
    def limits(self) -> Limits:
        """Limits that end the run early."""
        return Limits.of(vars(self.job.config))

    @property
    def states(self) -> StateFiles:
        """The run's state files."""
        return StateFiles(self.folder, self.job.config.keep)

    def resume_command(self) -> str:
        """Return the command that resumes the run, or only its last part under a launcher."""
        number, resume = this_process().world_size, ["--resume", str(self.folder)]
        if number > 1 and FILE_VARIABLE not in os.environ:  # train.py did not start the processes
            return f"{shlex.join(resume)} under the same launcher"
        several = ["--nproc", str(number)] if number > 1 else []
        return shlex.join([sys.executable, *program_words(), *several, *resume])

    def log_start(self, epochs_done: int, resumed: bool) -> None:
        """Notify the loggers that the run starts or resumes."""
        settings, hyp = run_settings(self.job.config), as_document(self.job.hyp)
        names = self.job.data.class_names
        self.loggers.run_begins(RunBegins(self.folder, settings, hyp, names, epochs_done, resumed))

    def add_epoch(self, epoch: int, row: Mapping[str, float]) -> None:
        """Add an epoch, numbered from 1, to results.csv, and notify the loggers."""
        self.results.append(row)
        self.loggers.epoch_ends(EpochEnds(epoch, row))

    def log_end(self, best_epoch: int | None, metrics: Mapping[str, float]) -> None:
        """Notify the loggers that the run ends, with the metrics of its best epoch."""
        images = sorted(x for x in self.folder.iterdir() if x.suffix in (".png", ".jpg"))
        weights = sorted(self.folder.glob("weights/*.safetensors"))
        self.loggers.run_ends(RunEnds(best_epoch, metrics, images, weights))


def begin_run(job: Job, columns: Sequence[str]) -> Run:
    """Return a run in a new folder, or in the folder of the resumed run.

    columns: columns of results.csv.
    """
    config, point, loggers, folder = job.config, job.point, Loggers(), Path()
    if this_process().is_main:
        loggers = make_loggers(config.loggers)
        if point is not None:
            folder = point.folder
        else:
            folder = create_run_folder(config.project, config.name, config.exist_ok)
        job.session.lock.take(folder)
        clean_up(folder, config.keep, point)
    shared = Path(job.session.world.broadcast_text(str(folder)))
    return Run(job, shared, Results(columns), loggers=loggers)


def clean_up(folder: Path, keep: int, point: ResumePoint | None) -> None:
    """Remove leftovers of an earlier run in this folder, and unfinished files."""
    states = StateFiles(folder, keep)
    for path in (folder, states.folder):
        remove_unfinished(path)
    (folder / RECORD).unlink(missing_ok=True)
    if point is None:
        states.remove_all()
    else:  # a killed run may not have done it
        states.give_names(point.path, point.header.progress["is_best"])
