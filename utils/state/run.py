"""A run: its folder, its records so far, and work.json, by which equal work is recognised."""

import hashlib
import json
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from duet.backend.cores import thread_variables
from duet.backend.processes import this_process
from duet.utils.cli.run_config import as_document
from duet.utils.cli.train_config import run_settings
from duet.utils.data.loading.batch import Batch
from duet.utils.files.atomic import atomic_text_file, remove_unfinished
from duet.utils.files.json_files import Document
from duet.utils.files.run_folder import create_run_folder
from duet.utils.processes.start import program_words
from duet.utils.processes.suspend import FILE_VARIABLE
from duet.utils.report.events import EpochEnds, Loggers, RunBegins, RunEnds, make_loggers
from duet.utils.report.results import Results
from duet.utils.state.files import StateFiles
from duet.utils.state.job import Job
from duet.utils.state.resume import RECORD, ResumePoint

SCHEMA = 1
# Hash every n-th value of a batch: all 80 MB would take as long as a step on a GPU. A prime covers
# all columns, rows and channels.
PIXEL_STRIDE = 1021


class WorkRecord:
    """Hash of the batches in order, or of this process's shards.

    Each hash covers the previous hash and the next batch, so resuming needs only the last.
    """

    def __init__(self) -> None:
        self._hash = ""
        self._batches = 0

    def add_batch(self, batch: Batch) -> None:
        self._batches += 1
        digest = hashlib.sha1(self._hash.encode(), usedforsecurity=False)
        digest.update(repr(batch.images.shape).encode())
        for array in (batch.images.reshape(-1)[::PIXEL_STRIDE], batch.sample_indices,
                      batch.global_indices, *batch.targets.arrays(),
                      *(batch.finishing or ())):  # fmt: skip
            digest.update(array.tobytes())
        self._hash = digest.hexdigest()

    def state(self) -> Document:
        """Return the state as JSON values, for `restore`."""
        return {"batches": self._batches, "sha1": self._hash}

    def restore(self, state: Document) -> None:
        self._batches, self._hash = state["batches"], state["sha1"]

    def write(
        self, path: Path, described: Document, work: Document, losses: Sequence[np.ndarray]
    ) -> None:
        """Write work.json.

        Args:
            described: what may differ between compared runs, by name.
            work: what must be equal.
            losses: losses of the first batches; null if not finite, which JSON cannot represent.
        """
        batches = {"batches": self._batches, "batches_sha1": self._hash}
        document = {
            "schema": SCHEMA,
            **described,
            "variables": thread_variables(),  # number of threads, and how they wait
            "work": {**batches, **work},
            "losses": [[_rounded(loss) for loss in row] for row in losses],
        }
        with atomic_text_file(path) as file:
            json.dump(document, file, indent=1)


def _rounded(loss: float) -> float | None:
    return float(f"{loss:.9g}") if math.isfinite(loss) else None


@dataclass(frozen=True)
class Run:
    job: Job
    folder: Path
    results: Results = field(default_factory=Results)
    work: WorkRecord = field(default_factory=WorkRecord)
    loggers: Loggers = field(default_factory=Loggers)

    @property
    def states(self) -> StateFiles:
        return StateFiles(self.folder, self.job.config.keep)

    def resume_command(self) -> str:
        """Return the command that resumes the run, or only its last part under a launcher."""
        number, resume = this_process().world_size, ["--resume", str(self.folder)]
        if number > 1 and FILE_VARIABLE not in os.environ:  # train.py did not start the processes
            return f"{shlex.join(resume)} under the same launcher"
        several = ["--nproc", str(number)] if number > 1 else []
        return shlex.join([sys.executable, *program_words(), *several, *resume])

    def log_start(self, epochs_done: int, resumed: bool) -> None:
        settings, hyp = run_settings(self.job.config), as_document(self.job.hyp)
        names = self.job.data.class_names
        self.loggers.run_begins(RunBegins(self.folder, settings, hyp, names, epochs_done, resumed))

    def add_epoch(self, epoch: int, row: Mapping[str, float]) -> None:
        """Add an epoch, numbered from 1, to results.csv, and notify the loggers."""
        self.results.append(row)
        self.loggers.epoch_ends(EpochEnds(epoch, row))

    def log_end(self, best_epoch: int | None, metrics: Mapping[str, float]) -> None:
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
    return Run(job, shared, Results(list(columns)), loggers=loggers)


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
