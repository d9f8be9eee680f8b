"""A run: its settings, its folder, and what it has recorded so far.

Before: the flags, and `utils/state/resume.py`. After: `train.py` trains;
`models/training/checkpointing.py` keeps it.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.processes import this_process
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import TrainConfig
from utils.processes.suspend import FILE_VARIABLE, StopRequests
from utils.processes.world import World
from utils.report.loggers.chosen import Loggers, make_loggers
from utils.report.results import Results
from utils.state.ending import Limits
from utils.state.files import StateFiles
from utils.state.folder import create_run_folder
from utils.state.lock import RunLock
from utils.state.resume import ResumePoint, begin_in
from utils.state.work_record import WorkRecord


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
        if number == 1:
            return shlex.join([sys.executable, *sys.argv[:1], *resume])
        if FILE_VARIABLE in os.environ:  # train.py started the processes
            return shlex.join([sys.executable, *sys.argv[:1], "--nproc", str(number), *resume])
        return f"{shlex.join(resume)} under the same launcher"


def begin_run(
    config: TrainConfig,
    hyp: Hyperparameters,
    class_names: tuple[str, ...],
    columns: Sequence[str],
    point: ResumePoint | None,
    stop: StopRequests,
    data: Mapping[str, Any],
    world: World,
    lock: RunLock,
) -> Run:
    """Return a run in a new folder, or in the folder of the run that goes on.

    Args:
        columns: of its results.csv.
        lock: kept while the run lasts.
    """
    loggers = make_loggers(config.loggers) if this_process().is_main else Loggers()
    own = str(begin_folder(config, point, lock)) if this_process().is_main else ""
    folder = Path(world.of_main(own))
    return Run(
        config,
        hyp,
        class_names,
        folder,
        results=Results(columns),
        stop=stop,
        data=data,
        loggers=loggers,
    )


def begin_folder(config: TrainConfig, point: ResumePoint | None, lock: RunLock) -> Path:
    """Make the folder of a new run, or clean up that of the run that goes on; return it."""
    if point is not None:
        folder = point.folder
    else:
        folder = create_run_folder(config.project, config.name, config.exist_ok)
    lock.take(folder)
    begin_in(folder, config.keep, point)
    return folder
