"""compare.html: one page that holds everything, needs no network and runs no script.

Before: `report.py` has the rows, `page_charts.py` and `page_findings.py` draw some of them,
`page.css` adds to the style of all pages, `utils/page/document.py` makes the page.
After: a reader's browser; `tests/unit/comparison/test_page.py` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from utils.comparison.measured import Document
from utils.comparison.page_charts import CHARTS, badge, side_colours
from utils.comparison.page_findings import findings_list
from utils.comparison.report import CELL_COLUMNS, TITLE, Report, Section, Table
from utils.page.blocks import Html
from utils.page.document import html_page as whole_page

STYLE = Path(__file__).with_name("page.css")
# Their rows are what a chart shows already, or what few readers ask for.
FOLDED = {"split": "In figures", "outcomes": "In figures", "load": "Each run",
          "notes": "Lines of the logs", "commands": "As they ran"}  # fmt: skip


def html_page(document: Document, report: Report) -> str:
    """Return the whole page.

    Args:
        document: for the charts.
        report: of the document.
    """
    parts = [f'<p class="lead">{escape(sentence)}</p>' for sentence in report.summary]
    parts += [f'<p class="warning" role="alert">{escape(line)}</p>' for line in report.warnings]
    parts += [f'<p class="soft">{escape(line)}</p>' for line in report.head]
    parts += [_section(section, document) for section in report.sections]
    return whole_page(TITLE, map(Html, parts), STYLE)


def _section(section: Section, document: Document) -> str:
    shown = [findings_list(section.findings, side_colours(document))] if section.findings else []
    shown += [CHARTS[section.name](document)] if section.name in CHARTS else []
    rows = "".join([
        *([_table(section.name, section.title, section.table)] if section.table.rows else []),
        *([f"<ul>{''.join(map(_item, section.items))}</ul>"] if section.items else []),
        *(f"<pre>{escape(block)}</pre>" for block in section.code),
    ])  # fmt: skip
    if rows and section.name in FOLDED:
        rows = f"<details><summary>{FOLDED[section.name]}</summary>{rows}</details>"
    blocks = "".join([*shown, rows])
    note = f'<p class="soft">{escape(section.note)}</p>' if section.note else ""
    return f"<section><h2>{escape(section.title)}</h2>{note}{blocks}</section>" if blocks else ""


def _item(item: str) -> str:
    return f"<li>{escape(item)}</li>"


def _table(name: str, title: str, table: Table) -> str:
    """Return a table whose first column stays in sight where a phone shows only some of them."""
    of_cell = len(CELL_COLUMNS)
    heading = "".join(f'<th scope="col">{escape(text)}</th>' for text in table.heading[of_cell:])
    rows = "".join(
        f"<tr>{_row_heading(row[:of_cell])}"
        f"{''.join(map(_cell, table.heading[of_cell:], row[of_cell:]))}</tr>"
        for row in table.rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}, figures">'
        f'<table data-table="{name}"><thead><tr><th scope="col">trainer</th>{heading}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row_heading(names: Sequence[str]) -> str:
    """Return trainer, variant and batch as one cell."""
    side, variant, batch = map(escape, names)
    return (
        f'<th scope="row"><span>{side}</span> <span>{variant}</span> '
        f'<span class="soft">batch <span>{batch}</span></span></th>'
    )


def _cell(title: str, text: str) -> str:
    return f"<td>{badge(text) if title == 'mark' else escape(text)}</td>"
