"""results.csv: a row an epoch, under the public YOLOv5's names and some of our own."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from utils.evaluation.coco.metric import EvaluationResult
from utils.files.atomic import atomic_text_file
from utils.report.stage_timer import STAGES, StageTimer

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
