"""What a run tells: its folder, results.csv, the seconds of each stage, lines on screen."""

from __future__ import annotations

import contextlib
import csv
import math
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from tqdm import tqdm

import backend
from backend.checks import CPU
from backend.processes import processes
from utils.errors import UserError
from utils.evaluation.coco.metric import EvaluationResult
from utils.evaluation.legacy.metric import LegacyResult
from utils.files.atomic import atomic_text_file

STAGES = (
    "data_wait",
    "to_device",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "ema",
    "validation",
)
RESULT_COLUMNS = (
    "epoch",
    "train/box_loss",
    "train/obj_loss",
    "train/cls_loss",
    "metrics/precision",
    "metrics/recall",
    "metrics/mAP_0.5",
    "metrics/mAP_0.5:0.95",
    "val/box_loss",
    "val/obj_loss",
    "val/cls_loss",
    "x/lr0",
    "x/lr1",
    "x/lr2",
    "seconds/epoch",
    *(f"seconds/{stage}" for stage in STAGES),
)
# Of the device's marks so many are kept: a few dozen steps, long done when they are read.
UNREAD_STAGES = 256

Item = TypeVar("Item")


class StageTimer:
    """Seconds spent in each stage since it was made; `with timer("forward"): ...`.

    A stage lasts from where the device is when it is entered to where it has done the stage's
    work. Its marks are read much later, so that timing does not make the host wait.
    """

    def __init__(self, device: str = CPU, spent: Mapping[str, float] | None = None) -> None:
        """A timer that starts now or, of a resumed epoch, goes on from a `state()`."""
        self._device = device
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._unread: deque[tuple[str, Any, Any]] = deque()
        self._start = time.perf_counter()
        if spent is not None:
            self._seconds = {stage: spent.get(stage, 0.0) for stage in STAGES}
            self._start -= spent["total"]

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = backend.device.mark(self._device)
        yield
        self._unread.append((name, start, backend.device.mark(self._device)))
        if len(self._unread) > UNREAD_STAGES:
            self._read_oldest()

    @property
    def seconds(self) -> dict[str, float]:
        """By stage; waits for the device to have done all of them."""
        while self._unread:
            self._read_oldest()
        return self._seconds

    def state(self) -> dict[str, float]:
        """The seconds of each stage, and "total"."""
        return {**self.seconds, "total": self.total()}

    def _read_oldest(self) -> None:
        stage, start, end = self._unread.popleft()
        self._seconds[stage] += backend.device.seconds_between(start, end)

    def waiting(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items of an iterable, the host's wait for each counted as "data_wait"."""
        iterator = iter(items)
        while True:
            start = time.perf_counter()
            item = next(iterator, None)
            self._seconds["data_wait"] += time.perf_counter() - start
            if item is None:
                return
            yield item

    def total(self) -> float:
        """Seconds since the timer was made."""
        return time.perf_counter() - self._start


def result_row(
    epoch: int,
    losses: Iterable[float],
    result: EvaluationResult,
    validation_losses: Iterable[float],
    rates: Iterable[float],
    timer: StageTimer,
) -> dict[str, float]:
    """The columns of results.csv for an epoch that ends now.

    Args:
        epoch: from 0.
        losses, validation_losses: mean box, objectness and classification loss.
        rates: learning rates of the optimizer's three groups.
        timer: of the epoch.
    """
    figures = (result.mean_precision, result.mean_recall, result.map50, result.map)
    stages = timer.seconds.values()
    values = (epoch, *losses, *figures, *validation_losses, *rates, timer.total(), *stages)
    return dict(zip(RESULT_COLUMNS, values, strict=True))


class Results:
    """The rows of results.csv, one an epoch; the file is written whole, so that it is never torn.

    Attributes:
        columns: their names; those that an earlier version gave the run stay.
        rows: of cells as text, "" where an epoch has no value.
    """

    def __init__(self) -> None:
        self.columns = list(RESULT_COLUMNS)
        self.rows: list[list[str]] = []

    def append(self, row: Mapping[str, float]) -> None:
        """Add a row that has a value for every column of today."""
        assert set(row) == set(RESULT_COLUMNS), set(row) ^ set(RESULT_COLUMNS)
        new = [name for name in RESULT_COLUMNS if name not in self.columns]
        self.columns = [*self.columns, *new]
        self.rows = [[*cells, *[""] * len(new)] for cells in self.rows]
        self.rows.append([f"{row[name]:.6g}" if name in row else "" for name in self.columns])

    def write(self, path: Path) -> None:
        """Write the columns' names and all rows."""
        with atomic_text_file(path) as file:
            csv.writer(file).writerows([self.columns, *self.rows])


def create_run_folder(project: Path, name: str, exist_ok: bool) -> Path:
    """project/name, or project/name2, name3, ... when it exists and exist_ok is not set."""
    try:
        project.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(str(number) for number in range(2, 10_000))):
            folder = project / f"{name}{suffix}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir(exist_ok=exist_ok)
                return folder
    except OSError as error:
        raise UserError(f"--project {project} --name {name}: {error.strerror}") from error
    raise UserError(f"--project {project} is full of runs called {name}; give another --name")


def write_yaml(path: Path, document: Mapping[str, Any]) -> None:
    """Write settings for a reader's eyes, in the order given."""
    with atomic_text_file(path) as file:
        yaml.safe_dump(dict(document), file, sort_keys=False)


def progress_bar(total: int, description: str, done: int = 0) -> tqdm:
    """A bar on one line of a terminal that leaves no trace; nothing where there is none.

    Of several processes the first alone shows it.
    """
    return tqdm(
        total=total,
        initial=done,
        desc=description,
        leave=False,
        dynamic_ncols=True,
        disable=not (sys.stderr.isatty() and processes().is_main),
    )


def metrics_table(result: EvaluationResult) -> str:
    """COCO's figures over all classes and per class, and COCO's summary, as text."""
    return "\n".join([*_class_lines(result), coco_summary(result)])


def legacy_table(result: LegacyResult) -> str:
    """YOLOv5's figures over all classes and per class, under a title that says so, as text."""
    title = f"{'as YOLOv5 prints it':>20}, for comparing with old logs; above is COCO's metric"
    return "\n".join([title, *_class_lines(result)])


def _class_lines(result: EvaluationResult | LegacyResult) -> list[str]:
    """A heading, all classes, and each that has labels: P, R, mAP50 and mAP50-95."""
    lines = [f"{'class':>20}{'images':>8}{'labels':>8}{'P':>9}{'R':>9}{'mAP50':>9}{'mAP50-95':>10}"]
    rows: list[tuple[str, int, Sequence[float]]] = [
        (
            "all",
            int(result.num_ground_truth.sum()),
            (result.mean_precision, result.mean_recall, result.map50, result.map),
        )
    ]
    for index, name in enumerate(result.class_names):
        if result.num_ground_truth[index]:
            measures = (result.precision, result.recall, result.ap50, result.ap)
            figures = [measure[index] for measure in measures]
            rows.append((name, int(result.num_ground_truth[index]), figures))
    for name, labels, values in rows:
        precision, recall, ap50, ap = values
        lines.append(
            f"{name:>20}{result.num_images:8d}{labels:8d}"
            f"{precision:9.4f}{recall:9.4f}{ap50:9.4f}{ap:10.4f}"
        )
    return lines


def coco_summary(result: EvaluationResult) -> str:
    """COCO's 12 figures in two lines; "-" where the labels hold nothing of a size."""
    cells = [
        f"{name:<9}{'-' if math.isnan(figure) else f'{figure:.4f}':<8}"
        for name, figure in result.summary().items()
    ]
    margin = " " * 6
    lines = [margin + "".join(row).rstrip() for row in (cells[:6], cells[6:])]
    return "\n".join([f"{'COCO summary':>20}, sizes by the labelled areas", *lines])
