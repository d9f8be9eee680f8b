"""results.csv: one row per epoch, with the public YOLOv5's column names and some more."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from duet.utils.errors import UserError
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.json_files import parse_json
from duet.utils.files.regular import read_text
from duet.utils.report.stage_timer import STAGES

EPOCH_SECONDS = "seconds/epoch"
MAX_BYTES = 2**24  # 100,000 epochs have fewer


def result_columns(losses: Iterable[str], metrics: Iterable[str]) -> list[str]:
    """Return the columns for a task's losses (short names) and metrics."""
    losses = list(losses)
    return [
        "epoch",
        *(f"train/{name}_loss" for name in losses),
        *(f"metrics/{name}" for name in metrics),
        *(f"val/{name}_loss" for name in losses),
        *("x/lr0", "x/lr1", "x/lr2"),
        EPOCH_SECONDS,
        *(f"seconds/{stage}" for stage in STAGES),
    ]


@dataclass
class Results:
    """Rows of results.csv, one per epoch; cells are text, "" for missing values."""

    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def append(self, row: Mapping[str, float]) -> None:
        """Add a row; new columns are appended."""
        new = [name for name in row if name not in self.columns]
        self.columns = [*self.columns, *new]
        self.rows = [[*cells, *[""] * len(new)] for cells in self.rows]
        self.rows.append([f"{row[name]:.6g}" if name in row else "" for name in self.columns])

    @property
    def seconds(self) -> float:
        """Total time of all epochs; missing values count as 0."""
        if EPOCH_SECONDS not in self.columns:
            return 0.0
        place = self.columns.index(EPOCH_SECONDS)
        return sum(float(cells[place] or 0) for cells in self.rows)

    def write(self, path: Path) -> None:
        with atomic_text_file(path) as file:
            csv.writer(file).writerows([self.columns, *self.rows])

    def write_lines(self, path: Path) -> None:
        """Write one JSON object per row, with null for missing and non-finite values."""
        with atomic_text_file(path) as file:
            for cells in self.rows:
                pairs = zip(self.columns, map(_number_or_none, cells), strict=True)
                file.write(json.dumps(dict(pairs)) + "\n")


def _number_or_none(cell: str) -> int | float | None:
    return parse_json(cell) if math.isfinite(float(cell or math.nan)) else None


def read_results(path: Path) -> tuple[list[str], list[dict[str, float]]]:
    """Read a results.csv; return column names, and each row's numbers by name, NaN if missing."""
    try:
        header, *rows = csv.reader(io.StringIO(read_text(path, MAX_BYTES), newline=""))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, csv.Error) as error:  # empty, not UTF-8, or an endless cell
        raise UserError(f"{path} is not a CSV file with a header: {error!s:.200}") from error
    names = [name.strip() for name in header]
    return names, [_numbers(path, number, names, row) for number, row in enumerate(rows, start=2)]


def _numbers(path: Path, line: int, names: Sequence[str], row: Sequence[str]) -> dict[str, float]:
    cells = dict(zip(names, row, strict=False))
    try:
        return {name: float(cells.get(name) or math.nan) for name in names}
    except ValueError as error:
        raise UserError(f"{path}, line {line}: {error!s:.200}; expected numbers") from error
