"""compare.json, compare.md and compare.html, replaced atomically after every run."""

from __future__ import annotations

import json
from pathlib import Path

from utils.comparison.measured import Document
from utils.comparison.report import Report, build_report
from utils.comparison.report_html import html_page
from utils.comparison.report_markdown import markdown
from utils.errors import UserError
from utils.files.atomic import atomic_text_file
from utils.files.json import read_json
from utils.screen.text import printable_lines


def read_document(folder: Path) -> Document | None:
    """Return the compare.json of a comparison that is resumed; None if its first run has not ended.

    Raises:
        UserError: it is damaged.
    """
    path = folder / "compare.json"
    if not path.exists():
        return None
    try:
        document = read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"--resume {folder}: compare.json cannot be read: {error}") from error
    if not isinstance(document, dict) or not {"machine", "created"} <= document.keys():
        raise UserError(f"--resume {folder}: compare.json holds no comparison; remove that file")
    return document


def write_reports(document: Document, folder: Path) -> Report:
    """Write all three into the folder of the comparison; return the report."""
    report = build_report(document)
    for name, text in (
        ("compare.json", json.dumps(document, indent=1)),
        ("compare.md", printable_lines(markdown(report))),
        ("compare.html", printable_lines(html_page(document, report))),
    ):
        with atomic_text_file(folder / name) as file:
            file.write(text)
    return report
