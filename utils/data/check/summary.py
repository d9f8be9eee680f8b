"""The check in lines of text, and all findings as CSV.

Before: `checking.py`, `figures.py`, `advice.py`. After: a terminal, a spreadsheet.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from utils.data.check.advice import Step
from utils.data.check.checking import Check
from utils.data.check.figures import Figures
from utils.data.check.kinds import KINDS, Finding
from utils.data.check.tables import (
    Table,
    anchor_text,
    class_table,
    shortened,
    small_text,
    split_table,
)
from utils.files.atomic import atomic_text_file
from utils.screen.text import printable

EXAMPLES = 3  # of a kind, in the lines
MOST_CLASSES = 20  # in the table; the page has all
COLUMNS = ("kind", "problem", "split", "where", "what")


def summary_lines(check: Check, figures: Figures, steps: Sequence[Step]) -> Iterator[str]:
    """Yield the summary; texts of files in it are not yet printable."""
    yield from _lines_of(split_table(check, figures))
    yield ""
    classes = class_table(check, figures)
    yield from _lines_of(Table(classes.heading, classes.rows[:MOST_CLASSES]))
    if len(classes.rows) > MOST_CLASSES:
        yield f"... and {len(classes.rows) - MOST_CLASSES} more, on the page"
    if check.has_boxes:
        yield from ("", small_text(figures), anchor_text(figures))
    yield from _kinds(check, "problems", is_problem=True)
    yield from _kinds(check, "worth knowing", is_problem=False)
    yield from ("", "to do first" if steps else "nothing needs to be done")
    for number, step in enumerate(steps, start=1):
        yield from (f"{number}. {step.title}: {step.reason}", f"   {step.how}")


def _kinds(check: Check, title: str, is_problem: bool) -> Iterator[str]:
    kinds = [name for name, kind in KINDS.items() if kind.is_problem == is_problem]
    found = {name: findings for name in kinds if (findings := check.of_kind(name))}
    yield from ("", title if found else f"{title}: none")
    for name, findings in found.items():
        yield f"{len(findings):7,}  {_lowered(KINDS[name].title)}"
        for finding in findings[:EXAMPLES]:
            yield shortened(f"         {finding.where}: {finding.text}", check)
        if len(findings) > EXAMPLES:
            yield f"         ... and {len(findings) - EXAMPLES:,} more"


def _lowered(title: str) -> str:
    return title[0].lower() + title[1:]


def _lines_of(table: Table) -> Iterator[str]:
    """Yield a table in columns, the first one to the left."""
    rows = [table.heading, *([printable(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.heading))]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """Write all findings as CSV, UTF-8."""
    with atomic_text_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for found in findings:
            problem = "yes" if KINDS[found.kind].is_problem else "no"
            row = (found.kind, problem, found.split, found.where, found.text)
            writer.writerow(map(_safe, row))


def _safe(text: str) -> str:
    """Return a text that a spreadsheet does not read as a formula."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown
