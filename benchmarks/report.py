"""The report of a run of benchmarks, report.md, made only from the JSON in its folder."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.side_by_side import COLUMNS, NOTE, Timing, cells_of
from duet.utils.comparison.document import number
from duet.utils.errors import UserError
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.json_files import read_json
from duet.utils.text import printable_lines

NAME, RUN = "report.md", "run.json"


class Script(NamedTuple):
    """Output of one script: its rows, and the whole document."""

    name: str
    timings: list[Timing]
    document: Mapping[str, Any]


def read_scripts(folder: Path) -> list[Script]:
    """Read the output of scripts in a folder; JSON without timings is ignored.

    Raises:
        UserError: a file is damaged, or from another version.
    """
    scripts = []
    for path in sorted(folder.glob("*.json")):
        try:
            document = read_json(path)
            if "timings" in document:
                rows = document["timings"]
                timings = [Timing(**{**row, "ratio": row["ratio"] or math.nan}) for row in rows]
                scripts.append(Script(path.stem, timings, document))
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{path}: {error}; run the benchmarks again, or move it") from error
    return scripts


def table(title: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table below its title; [] without rows."""
    lines = [heading, ["---"] * len(heading), *rows]
    shown = [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]
    return [f"## {title}", "", *shown, ""] if rows else []


def markdown(folder: Path) -> str:
    """Return the report of a folder; UserError for damaged results."""
    scripts, run = read_scripts(folder), read_json(folder / RUN)
    limit = "none" if run["minutes"] is None else f"--minutes {run['minutes']:g}"
    lines = ["# Benchmarks", "", NOTE,
        f"{run['host']}, {run['date']}, load average {number(run['load_average'])} at the end; "
        f"time limit: {limit}.", ""]  # fmt: skip
    states = [(x["name"], x["state"], number(x["seconds"])) for x in run["jobs"]]
    lines += table("Jobs", ("job", "ended", "seconds"), states)
    rows = [(script.name, *cells_of(x)) for script in scripts for x in script.timings]
    lines += table("Figures", ("script", *COLUMNS), rows)
    left = [(x.name, y) for x in scripts for y in x.document.get("left_out", [])]
    reasons = [(name, row["case"], row["reason"]) for name, row in left]
    lines += table("Without a figure", ("script", "case", "reason"), reasons)
    origin = ("machine", "date", "load_average", "command")
    origins = [(x.name, *(str(x.document.get(key)) for key in origin)) for x in scripts]
    lines += table("Scripts", ("script", "machine", "date", "load", "command"), origins)
    return "\n".join(lines).rstrip() + "\n"


def write_report(folder: Path) -> Path:
    """Write the report of a run into its folder; return its path."""
    path, text = folder / NAME, printable_lines(markdown(folder))
    with atomic_text_file(path) as file:
        file.write(text)
    return path
