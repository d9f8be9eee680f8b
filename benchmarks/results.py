"""What a run of benchmarks wrote: the JSON of each script, and run.json of all of them.

Before: `side_by_side.py::write_json` and `__main__.py`. After: `report.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import Timing
from utils.errors import UserError
from utils.files.json import Default, complete, read_json

RUN = "run.json"
COMPILED = "_compiled"  # behind the name of a script that runs again with compiled steps
TESTS_NAME = "tests"
TESTS = "tests.txt"  # what pytest printed
OPTIONAL_NUMBER = Default(float, None)
OPTIONAL_COUNT = Default(int, None)
TIMING = {
    "case": str, "name": str, "median": float, "fastest": float, "slowest": float, "runs": int,
    "ratio": Default(float, math.nan), "others": OPTIONAL_NUMBER, "ratio_from": OPTIONAL_NUMBER,
    "ratio_to": OPTIONAL_NUMBER, "ratio_fastest": OPTIONAL_NUMBER, "images": OPTIONAL_COUNT,
    "peak_bytes": OPTIONAL_COUNT, "host_waits": OPTIONAL_COUNT,
}  # fmt: skip
PROFILE = {
    "case": str, "launched": int, "kind": str, "busy_ms": float, "span_ms": float,
    "operations": [{"name": str, "milliseconds": float}],
}  # fmt: skip
SCRIPT = {
    "machine": str, "device": str, "date": str, "command": [str],
    "load_average": OPTIONAL_NUMBER, "timings": [TIMING],
    "left_out": Default([{"case": str, "reason": str}], []), "profiles": Default([PROFILE], []),
}  # fmt: skip
WHOLE_RUN = {
    "host": str, "date": str, "minutes": OPTIONAL_NUMBER, "load_average": OPTIONAL_NUMBER,
    "jobs": [{"name": str, "state": str, "seconds": OPTIONAL_NUMBER}],
}  # fmt: skip


@dataclass(frozen=True)
class Script:
    """What one script wrote.

    Attributes:
        left_out: cases without a figure, each with its reason.
        profiles: as `PROFILE` says.
    """

    name: str
    machine: str
    device: str
    date: str
    command: list[str]
    load_average: float | None
    timings: list[Timing]
    left_out: list[dict[str, str]]
    profiles: list[dict[str, Any]]

    def compared(self) -> list[tuple[Timing | None, Timing]]:
        """Return each row but the references, with the reference of its case if it has one."""
        references: dict[str, Timing] = {}
        for timing in self.timings:
            if timing.ratio == 1:
                references.setdefault(timing.case, timing)
        pairs = [(references.get(timing.case), timing) for timing in self.timings]
        return [(reference, timing) for reference, timing in pairs if timing is not reference]


@dataclass(frozen=True)
class Results:
    """What is in the folder of a run."""

    folder: Path
    scripts: list[Script]
    run: Mapping[str, Any] | None  # of `WHOLE_RUN`; None if the scripts were run one by one
    tests: str | None


def read_results(folder: Path) -> Results:
    """Read the folder of a run.

    Raises:
        UserError: it has no results, or damaged ones.
    """
    scripts, run, tests = read_scripts(folder), folder / RUN, folder / TESTS
    if not scripts and not run.is_file():
        raise UserError(
            f"{folder}: no results there; `python -m benchmarks --output {folder}` writes them"
        )
    return Results(
        folder,
        scripts,
        _complete(run, _read(run), WHOLE_RUN) if run.is_file() else None,
        tests.read_text(encoding="utf-8", errors="replace") if tests.is_file() else None,
    )


def read_scripts(folder: Path) -> list[Script]:
    """Read what scripts wrote into a folder; JSON without timings is none of theirs.

    Raises:
        UserError: a file is damaged.
    """
    found = {path.stem: (path, _read(path)) for path in sorted(folder.glob("*.json"))}
    return [
        Script(name, **_complete(path, document, SCRIPT))
        for name, (path, document) in found.items()
        if isinstance(document, dict) and "timings" in document
    ]


def _read(path: Path) -> Any:
    try:
        return _without_null(read_json(path))
    except ValueError as error:
        raise UserError(f"{path}: {error}; run the benchmarks again, or move it") from error


def _complete(path: Path, document: Any, kind: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a file, of which `kind` says what they are."""
    try:
        members = complete(document, dict(kind))
    except ValueError as error:
        raise UserError(
            f"{path}: {str(error) or 'its value'} is not as this version of the benchmarks writes "
            "it; run them again, or move the file"
        ) from error
    if "timings" in members:
        members["timings"] = [Timing(**row) for row in members["timings"]]
    return members


def _without_null(value: Any) -> Any:
    """Return a value without the members that are null: they count as absent."""
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value
