"""results.csv: one row per epoch, with the public YOLOv5's column names and some more."""

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

EPOCH_SECONDS = "seconds/epoch"
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
MAX_BYTES = 2**24  # 100,000 epochs have fewer


def epoch_row(
    epoch: int,
    losses: Mapping[str, float],
    metrics: Mapping[str, float],
    val_losses: Mapping[str, float],
    rates: Sequence[float],
    seconds: Mapping[str, float],
) -> dict[str, float]:
    """Return an epoch's row by column; without a validation, its columns are missing.

    Args:
        losses, val_losses: by short name.
        rates: learning rates of biases, convolutions and BatchNorm.
        seconds: a `StageTimer.state()`.
    """
    return {
        "epoch": epoch,
        **{f"train/{name}_loss": loss for name, loss in losses.items()},
        **{f"metrics/{name}": value for name, value in metrics.items()},
        **{f"val/{name}_loss": loss for name, loss in val_losses.items()},
        **{f"x/lr{number}": rate for number, rate in enumerate(rates)},
        EPOCH_SECONDS: seconds["total"],
        **{f"seconds/{stage}": seconds[stage] for stage in STAGES},
    }


def result_columns(losses: Iterable[str], metrics: Iterable[str]) -> list[str]:
    """Return the columns for a task's losses (short names) and metrics."""
    no_losses, no_metrics = dict.fromkeys(losses, 0.0), dict.fromkeys(metrics, 0.0)
    no_seconds = dict.fromkeys((*STAGES, "total"), 0.0)
    return list(epoch_row(0, no_losses, no_metrics, no_losses, (0.0, 0.0, 0.0), no_seconds))


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
                values = (
                    parse_json(cell) if math.isfinite(float(cell or math.nan)) else None
                    for cell in cells
                )
                file.write(json.dumps(dict(zip(self.columns, values, strict=True))) + "\n")


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
