"""One run as a JSON document: time and memory, its epochs, and its work.

Before: `runner.py` ran it. After: `document.py` puts the runs of all cells together.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from utils.comparison.load import children_seconds
from utils.comparison.plan import VARIANTS, Turn
from utils.comparison.runner import Outcome
from utils.errors import UserError
from utils.files.json import read_json
from utils.files.regular import MAX_BYTES, open_regular
from utils.report.results import read_results

LOG_LINES = 15
SPEAKER = re.compile(r"(rank \d+: )?")  # the start of a line, if several processes print
SAYS_ERROR = re.compile(rf"{SPEAKER.pattern}error: ")
MAX_NOTES = 5
Document = dict[str, Any]


class Arrival(NamedTuple):
    """When a row was first seen."""

    seconds: float
    processor_seconds: float  # that all runs until then have taken


class ArrivingRows:
    """When each row of a growing CSV file was first seen; call it again and again.

    Rows that exist at the start are of an earlier run, unless the file is written anew.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._before = self._rows()
        self.arrivals: list[Arrival] = []

    def __call__(self) -> None:
        rows = self._rows()
        if rows < self._before:
            self._before = 0
        if new := rows - self._before - len(self.arrivals):
            self.arrivals += [Arrival(time.monotonic(), children_seconds())] * new

    def _rows(self) -> int:
        """Count the rows below the heading."""
        if self._path is None or not self._path.exists():
            return 0
        with open_regular(self._path, MAX_BYTES) as file:  # it grows while it is read
            return max(file.read(MAX_BYTES).count(b"\n") - 1, 0)

    def epochs(self, warm_up: int) -> list[Document]:
        """Return the seconds and the processor time between rows, by epoch.

        The first epoch includes the start-up and is left out, as are rows first seen together.
        """
        gaps = zip(self.arrivals, self.arrivals[1:], strict=False)
        return [
            {
                "epoch": number,
                "counted": number >= warm_up,
                "seconds": end.seconds - start.seconds,
                "processor_seconds": end.processor_seconds - start.processor_seconds,
            }
            for number, (start, end) in enumerate(gaps, start=1)
            if end > start
        ]


def failed_run(turn: Turn, command: Sequence[str], reason: str) -> Document:
    """Return the record of a run without figures."""
    return {
        "cell": turn.cell.name,
        "round": turn.round,
        "command": list(command),
        "failure": reason,
        "log_tail": [],
        "epochs": [],
        "work": None,
    }


def describe_run(
    turn: Turn, command: Sequence[str], outcome: Outcome, log: Path, epochs: list[Document]
) -> Document:
    """Return what is known of any run, also of an external trainer's."""
    failure = failure_of(outcome)
    tail = log_tail(log) if failure else []
    # The output of a run that was ended explains nothing.
    words = [] if outcome.timed_out else reason(tail)
    return {
        "cell": turn.cell.name,
        "round": turn.round,
        "command": list(command),
        "failure": ": ".join([failure, *words]) if failure else None,
        "log_tail": tail,
        "process_seconds": outcome.seconds,
        "processor_seconds": outcome.processor_seconds,
        "peak_host_mib": outcome.peak_host_mib,
        "peak_device_mib": outcome.peak_device_mib,
        "epochs": epochs,
        "work": None,
    }


def failure_of(outcome: Outcome) -> str | None:
    """Return why a process gave no figures; None if it ended well."""
    if outcome.timed_out:
        return f"ended after {outcome.seconds:.0f} s, the limit of --timeout"
    if outcome.exit_code < 0:
        return f"ended by signal {-outcome.exit_code}"
    return f"exit code {outcome.exit_code}" if outcome.exit_code else None


def add_what_train_wrote(run: Document, turn: Turn, folder: Path, warm_up: int, log: Path) -> None:
    """Complete the record of a run of train.py from its folder."""
    try:
        run["epochs"] = read_epochs(folder / "results.csv", warm_up)
        written = read_json(folder / "work.json")
    except (OSError, ValueError) as error:
        run["failure"] = f"its files cannot be read: {error}"
        return
    for name in ("framework", "device", "work", "means", "losses"):
        run[name] = written[name]
    run["variables"] = written.get("variables", {})
    if run["device"] == "cpu":
        run["peak_device_mib"] = None
    run["notes"] = notes(turn.cell.variant, log)


def read_epochs(path: Path, warm_up: int) -> list[Document]:
    """Read the rows of results.csv: seconds, their split, losses and metrics."""
    names, rows = read_results(path)
    if "seconds/epoch" not in names:
        raise UserError(f"{path} has no column seconds/epoch, by which a run is timed")
    return [_epoch(number, row, warm_up) for number, row in enumerate(rows)]


def _epoch(number: int, row: Mapping[str, float], warm_up: int) -> Document:
    found = {name: _finite(value) for name, value in row.items()}
    seconds = _part(found, "seconds")
    return {
        "epoch": number,
        "counted": number >= warm_up,
        "seconds": seconds.pop("epoch"),
        "stages": seconds,
        "train": _part(found, "train"),
        "val": _part(found, "val"),
        "metrics": _part(found, "metrics"),
    }


def _finite(value: float) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def _part(row: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the columns "prefix/name" by name."""
    start = prefix + "/"
    return {name.removeprefix(start): row[name] for name in row if name.startswith(start)}


def notes(variant: str, log: Path) -> list[str]:
    """Return the lines of the log that name an option of the variant: they say what really ran."""
    flags = [flag.lstrip("-") for flag in VARIANTS[variant].flags if flag.startswith("--")]
    if not flags:
        return []
    names = "|".join(re.escape(flag).replace(r"\-", "[-_ ]") for flag in flags)
    option = re.compile(rf"\b({names})\b")
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    found = (SPEAKER.sub("", line.strip(), count=1) for line in lines if option.search(line))
    return list(dict.fromkeys(found))[:MAX_NOTES]


def log_tail(log: Path) -> list[str]:
    """Return the last lines that a run printed, as a terminal would show them."""
    with open_regular(log) as file:
        lines = file.read().decode(errors="replace").split("\n")
    # A progress bar writes over itself: what it showed before says nothing.
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines if line][-LOG_LINES:]


def reason(tail: Sequence[str]) -> list[str]:
    """Return the line that says why a run failed: the last error, else the last line, else []."""
    lines = [line for line in tail if line.strip()]
    errors = [line for line in lines if SAYS_ERROR.match(line)]
    return (errors or lines)[-1:]
