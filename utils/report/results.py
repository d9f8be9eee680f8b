"""results.csv: one row per epoch, under the public YOLOv5's names and some of our own."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from duet.utils.atomic_files import atomic_text_file
from duet.utils.errors import UserError
from duet.utils.regular_files import read_text
from duet.utils.report.stage_timer import STAGES, StageTimer

EPOCH_SECONDS = "seconds/epoch"
MAX_BYTES = 2**24  # 100,000 epochs have fewer


def result_columns(losses: Iterable[str], figures: Iterable[str]) -> list[str]:
    """Return the columns for a task's losses, by short name, and figures."""
    losses = list(losses)
    return [
        "epoch",
        *(f"train/{name}_loss" for name in losses),
        *(f"metrics/{name}" for name in figures),
        *(f"val/{name}_loss" for name in losses),
        *("x/lr0", "x/lr1", "x/lr2"),
        EPOCH_SECONDS,
        *(f"seconds/{stage}" for stage in STAGES),
    ]


def result_row(
    columns: Sequence[str],
    epoch: int,
    losses: Iterable[float],
    figures: Iterable[float],
    validation_losses: Iterable[float],
    rates: Iterable[float],
    timer: StageTimer,
) -> dict[str, float]:
    """Return the columns of results.csv for an epoch that ends now.

    Args:
        columns: `result_columns` of the task, in whose order losses and figures are.
        epoch: from 0.
        rates: learning rates of the optimizer's three groups.
        timer: of the epoch.
    """
    stages = timer.seconds.values()
    values = (epoch, *losses, *figures, *validation_losses, *rates, timer.total(), *stages)
    return dict(zip(columns, values, strict=True))


class Results:
    """The rows of results.csv, one per epoch; the file is written whole, so that it is never torn.

    Attributes:
        columns: their names; those that an earlier version gave the run stay.
        rows: of cells as text, "" if an epoch has no value.
    """

    def __init__(self, columns: Iterable[str] = ()) -> None:
        self.columns = list(columns)
        self.rows: list[list[str]] = []

    def append(self, row: Mapping[str, float]) -> None:
        """Add a row; columns that are new with it come last."""
        new = [name for name in row if name not in self.columns]
        self.columns = [*self.columns, *new]
        self.rows = [[*cells, *[""] * len(new)] for cells in self.rows]
        self.rows.append([f"{row[name]:.6g}" if name in row else "" for name in self.columns])

    @property
    def seconds(self) -> float:
        """Of all epochs."""
        return seconds_of(self.columns, self.rows)

    def write(self, path: Path) -> None:
        """Write the columns' names and all rows."""
        with atomic_text_file(path) as file:
            csv.writer(file).writerows([self.columns, *self.rows])

    def write_lines(self, path: Path) -> None:
        """Write one JSON object per row, with null if it has no value or no finite one."""
        with atomic_text_file(path) as file:
            for cells in self.rows:
                pairs = zip(self.columns, map(_number_or_none, cells), strict=True)
                file.write(json.dumps(dict(pairs)) + "\n")


def seconds_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> float:
    """Return how long the epochs of some rows took together; one without a value counts as 0."""
    if EPOCH_SECONDS not in columns:
        return 0.0
    place = columns.index(EPOCH_SECONDS)
    return sum(float(cells[place] or 0) for cells in rows)


def _number_or_none(cell: str) -> int | float | None:
    number = float(cell or math.nan)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and "." not in cell else number


def read_results(path: Path) -> tuple[list[str], list[dict[str, float]]]:
    """Read results.csv of this project or of a trainer that writes the same form.

    Returns:
        The columns' names, and for each row numbers by name; NaN where a row has no value.

    Raises:
        UserError: the file cannot be read, or a cell is no number.
    """
    try:
        header, *rows = csv.reader(io.StringIO(read_text(path, MAX_BYTES), newline=""))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, csv.Error) as error:  # no line at all, not UTF-8, an endless cell
        raise UserError(f"{path} is no CSV with a line of names: {error!s:.200}") from error
    names = [name.strip() for name in header]
    return names, [_numbers(path, number, names, row) for number, row in enumerate(rows, start=2)]


def _numbers(path: Path, line: int, names: Sequence[str], row: Sequence[str]) -> dict[str, float]:
    cells = dict(zip(names, row, strict=False))
    try:
        return {name: float(cells.get(name) or math.nan) for name in names}
    except ValueError as error:
        raise UserError(f"{path}, line {line}: {error!s:.200}; numbers are needed") from error
