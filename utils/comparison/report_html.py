"""compare.html: one page that holds everything, needs no network and runs no script.

Before: `report.py` has the rows, `page_charts.py` draws some of them, `page.css` adds to the style
of all pages, `utils/page/document.py` makes the page.
After: a reader's browser; `tests/unit/comparison/test_page.py` reads it.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from utils.comparison.measured import Document
from utils.comparison.page_charts import CHARTS
from utils.comparison.report import NONE, TITLE, Finding, Report, Section, Table
from utils.page.blocks import Html
from utils.page.document import html_page as whole_page

STYLE = Path(__file__).with_name("page.css")


def html_page(document: Document, report: Report) -> str:
    """Return the whole page.

    Args:
        document: for the charts.
        report: of the document.
    """
    parts = [f'<p class="soft">{escape(line)}</p>' for line in report.head]
    parts += [f'<p class="warning" role="alert">{escape(line)}</p>' for line in report.warnings]
    parts += [_section(section, document) for section in report.sections]
    return whole_page(TITLE, map(Html, parts), STYLE)


def _section(section: Section, document: Document) -> str:
    findings, items = "".join(map(_finding, section.findings)), "".join(map(_item, section.items))
    blocks = [f'<ul class="pairs">{findings}</ul>'] if findings else []
    blocks += [CHARTS[section.name](document)] if section.name in CHARTS else []
    blocks += [_table(section.name, section.table)] if section.table.rows else []
    blocks += [f"<ul>{items}</ul>"] if items else []
    blocks += [f"<pre>{escape(block)}</pre>" for block in section.code]
    shown = "".join(blocks)
    note = f'<p class="soft">{escape(section.note)}</p>' if section.note else ""
    return f"<section><h2>{escape(section.title)}</h2>{note}{shown}</section>" if shown else ""


def _finding(finding: Finding) -> str:
    alarms = [f'<span class="bad">{escape(alarm)}</span>' for alarm in finding.alarms]
    details = [*alarms, *map(escape, filter(None, [finding.spread, *finding.details]))]
    ratio = finding.ratio if finding.ratio == NONE else f"{finding.ratio} ×"
    return (
        f'<li><span class="ratio">{ratio}</span>{escape(finding.names)}<br>'
        f'<span class="verdict">{escape(finding.verdict)}</span><br>'
        f'<span class="soft">{"; ".join(details)}</span></li>'
    )


def _item(item: str) -> str:
    return f"<li>{escape(item)}</li>"


def _table(name: str, table: Table) -> str:
    heading = "".join(f"<th>{escape(text)}</th>" for text in table.heading)
    rows = []
    for row in table.rows:
        cells = (
            f'<td data-label="{escape(title)}"{_warned(title)}>{escape(text)}</td>'
            for title, text in zip(table.heading, row, strict=True)
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<h3>In figures</h3><table data-table="{name}"><thead><tr>{heading}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _warned(title: str) -> str:
    return ' class="bad"' if title == "mark" else ""
