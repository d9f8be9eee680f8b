"""The report as text: compare.md, and the figures on the terminal at the end.

Before: `report.py`. After: a reader; docs/en/compare.md shows such tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from utils.comparison.findings import Finding
from utils.comparison.report import CELL_COLUMNS, TITLE, Report, Section, Table


def markdown(report: Report) -> str:
    """Return the whole report."""
    lines = [f"# {TITLE}", ""]
    lines += [f"{_escaped(sentence)}\n" for sentence in report.summary]
    lines += [f"> **{_escaped(warning)}**\n" for warning in report.warnings]
    lines += [*map(_escaped, report.head), ""]
    return "\n".join([*lines, *sections(report.sections)])


def sections(parts: Sequence[Section]) -> Iterator[str]:
    """Yield the lines of the sections that are not empty, each below its heading."""
    for part in parts:
        blocks = [f"- {_escaped(sentence(finding))}" for finding in part.findings]
        blocks += [f"- {_escaped(item)}" for item in part.items]
        blocks += _table(part.table)
        blocks += ["    " + block.replace("\n", "\n    ") + "\n" for block in part.code]
        if blocks:
            note = [part.note, ""] if part.note else []
            yield from (f"## {part.title}", "", *note, *blocks, "")


def sentence(finding: Finding) -> str:
    """Return a finding on one line."""
    spread = f" ({finding.spread})" if finding.spread else ""
    said = (
        f"{finding.figure} times the time{spread}: {finding.verdict}"
        if finding.figure
        else f"{finding.verdict}{spread}"
    )
    return f"{finding.names}: {'; '.join([said, *finding.alarms, *finding.details])}"


def _table(table: Table) -> list[str]:
    """Return the lines of a table, padded so it can be read as plain text."""
    if not table.rows:
        return []
    rows = [[_escaped(text) for text in row] for row in (table.heading, *table.rows)]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    names = len(CELL_COLUMNS) - 1  # the batch is a figure
    rules = [":" + "-" * (w - 1) if i < names else "-" * (w - 1) + ":"
             for i, w in enumerate(widths)]  # fmt: skip
    padded = [
        [text.ljust(w) if i < names else text.rjust(w)
         for i, (text, w) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]  # fmt: skip
    return ["| " + " | ".join(row) + " |" for row in (padded[0], rules, *padded[1:])]


def _escaped(text: str) -> str:
    """Escape a text: the user's names must not end a cell or become markup."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
