"""What a training starts from, and a run: its settings, data, folder, and what it has recorded."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from backend.processes import this_process
from utils.atomic_files import remove_unfinished
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import TrainConfig
from utils.data.loading.items import BOXES, BoxItems
from utils.data.loading.order import BatchRecipe
from utils.data.sources.samples import Sample, table_of
from utils.errors import UserError
from utils.processes.suspend import FILE_VARIABLE, StopRequests
from utils.processes.world import ALONE, World
from utils.report.events import Loggers, make_loggers
from utils.report.results import Results
from utils.state.files import StateFiles
from utils.state.folder import RunLock, create_run_folder
from utils.state.progress import Limits
from utils.state.resume import RECORD, ResumePoint
from utils.state.work_record import WorkRecord
from utils.text import count
from utils.weights.checkpoint import Checkpoint, Header


@dataclass(frozen=True)
class Job:
    """The settings of a training, its data, and the state from which it starts or goes on.

    All of it is read before a framework is imported.
    """

    config: TrainConfig
    hyp: Hyperparameters
    class_names: tuple[str, ...]
    train_samples: Sequence[Sample]
    val_samples: Sequence[Sample]
    start: Checkpoint | None  # the weights to start with
    point: ResumePoint | None  # the state to go on from
    stop: StopRequests
    lock: RunLock  # of the run's folder; rank 0 takes it
    world: World = ALONE
    items: BoxItems = BOXES  # of the task

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """Number and hash of the samples, by split."""
        return {
            "train": describe_samples(self.train_samples),
            "val": describe_samples(self.val_samples),
        }


def batch_recipe(config: TrainConfig) -> BatchRecipe:
    """Return which samples form a batch, and in which shape, by the flags."""
    return BatchRecipe(
        config.rect, config.quad, config.image_weights, config.repeat_factor, config.mosaic_window
    )


@dataclass(frozen=True)
class Run:
    """What does not change during a run."""

    config: TrainConfig
    hyp: Hyperparameters
    class_names: tuple[str, ...]
    folder: Path
    work: WorkRecord = field(default_factory=WorkRecord)
    results: Results = field(default_factory=Results)
    stop: StopRequests = field(default_factory=StopRequests)
    data: Mapping[str, Any] = field(default_factory=dict)  # digests of its samples, by split
    loggers: Loggers = field(default_factory=Loggers)

    @property
    def limits(self) -> Limits:
        """The limits that end the run early."""
        return Limits.of(vars(self.config))

    @property
    def states(self) -> StateFiles:
        """The files of its states."""
        return StateFiles(self.folder, self.config.keep)

    def line_to_go_on(self) -> str:
        """Return the command line that resumes the run; under a launcher only its last part."""
        number, resume = this_process().world_size, ["--resume", str(self.folder)]
        if number > 1 and FILE_VARIABLE not in os.environ:  # train.py did not start the processes
            return f"{shlex.join(resume)} under the same launcher"
        several = ["--nproc", str(number)] if number > 1 else []
        return shlex.join([sys.executable, *sys.argv[:1], *several, *resume])


def begin_run(job: Job, columns: Sequence[str]) -> Run:
    """Return a run in a new folder, or in the folder of the run that goes on.

    columns: of its results.csv.
    """
    config, point, loggers, folder = job.config, job.point, Loggers(), Path()
    if this_process().is_main:
        loggers = make_loggers(config.loggers)
        if point is not None:
            folder = point.folder
        else:
            folder = create_run_folder(config.project, config.name, config.exist_ok)
        job.lock.take(folder)
        clean_up(folder, config.keep, point)
    return Run(
        config,
        job.hyp,
        job.class_names,
        Path(job.world.of_main(str(folder))),
        results=Results(columns),
        stop=job.stop,
        data=job.data,
        loggers=loggers,
    )


def clean_up(folder: Path, keep: int, point: ResumePoint | None) -> None:
    """Remove what an earlier run in this folder left, and what was never finished."""
    states = StateFiles(folder, keep)
    for path in (folder, states.folder):
        remove_unfinished(path)
    (folder / RECORD).unlink(missing_ok=True)
    if point is None:
        states.remove_all()
    else:  # a run that was killed may not have done it
        states.give_names(point.path, point.header.progress["is_best"])


def describe_samples(samples: Sequence[Sample]) -> dict[str, Any]:
    """Count and hash samples: names, sizes and labels in order, but not their folders.

    Polygons have a hash of their own, "" without any: that of the boxes is what it always was.
    """
    table = table_of(samples)
    digest, outlines = hashlib.sha256(), hashlib.sha256()
    # Of numbers and slices alone: a sample of its own for each image would take ten times as long.
    classes = table.class_index.view(np.uint8).data
    boxes = table.boxes_cxcywh_norm.reshape(-1).view(np.uint8).data
    bounds = pairwise(table.starts.tolist())
    for number, (size, path, (first, end)) in enumerate(
        zip(table.sizes.tolist(), table.paths, bounds, strict=True)
    ):
        line = f"{path.rpartition('/')[2]} {size[0]} {size[1]}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))  # a name may be no UTF-8
        digest.update(classes[8 * first : 8 * end])  # int64
        digest.update(boxes[16 * first : 16 * end])  # four float32
        if table.polygons_norm is None:
            continue
        if (polygons := table.polygons_norm.range(first, end)) is not None:
            outlines.update(f"{number}\n".encode())
            outlines.update(polygons.starts.tobytes() + polygons.points_xy.tobytes())
    return {
        "images": len(table),
        "sha256": digest.hexdigest(),
        "polygons": "" if table.polygons_norm is None else outlines.hexdigest(),
    }


def require_equal_data(header: Header, class_names: Sequence[str], data: Mapping[str, Any]) -> None:
    """Raise UserError unless classes, images and labels are those with which the run began."""
    if tuple(class_names) != header.class_names:
        raise UserError("--resume: --data has other classes than the run began with")
    for split, stored in header.progress["data"].items():
        found = data[split]
        if found != stored:
            raise UserError(
                f"--resume: images or labels of --data, split {split}, are not those that the run "
                f"began with ({count(found['images'], 'image')} now, "
                f"{stored['images']} then); restore them, or start a new run from its weights"
            )
