"""A run: its settings, its folder, and what it has recorded so far.

Before: the flags, and `utils/state/resume.py`. After: `train.py` trains;
`models/training/checkpointing.py` keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.processes import this_process
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import TrainConfig
from utils.processes.suspend import StopRequests
from utils.processes.world import World
from utils.report.results import Results
from utils.state.files import StateFiles
from utils.state.folder import create_run_folder
from utils.state.resume import ResumePoint, begin_in
from utils.state.work_record import WorkRecord


@dataclass(frozen=True)
class Run:
    """What stays as it is during a run."""

    config: TrainConfig
    hyp: Hyperparameters
    class_names: tuple[str, ...]
    folder: Path
    work: WorkRecord = field(default_factory=WorkRecord)
    results: Results = field(default_factory=Results)
    stop: StopRequests = field(default_factory=StopRequests)
    data: Mapping[str, Any] = field(default_factory=dict)  # digests of its samples, by split

    @property
    def states(self) -> StateFiles:
        """Where its states are kept."""
        return StateFiles(self.folder, self.config.keep)


def begin_run(
    config: TrainConfig,
    hyp: Hyperparameters,
    class_names: tuple[str, ...],
    columns: Sequence[str],
    point: ResumePoint | None,
    stop: StopRequests,
    data: Mapping[str, Any],
    world: World,
) -> Run:
    """Return a run in a folder of its own, or in that of the run which goes on.

    columns: of its results.csv.
    """
    folder = str(begin_folder(config, point)) if this_process().is_main else ""
    place = Path(world.of_main(folder))
    results = Results(columns)
    return Run(config, hyp, class_names, place, results=results, stop=stop, data=data)


def begin_folder(config: TrainConfig, point: ResumePoint | None) -> Path:
    """The folder of a new run, or that of the run which goes on, in order."""
    if point is not None:
        folder = point.folder
    else:
        folder = create_run_folder(config.project, config.name, config.exist_ok)
    begin_in(folder, config.keep, point)
    return folder
