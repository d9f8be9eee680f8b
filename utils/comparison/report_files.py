"""compare.json, compare.md and compare.html, replaced atomically after every run."""

from __future__ import annotations

import json
from pathlib import Path

from utils.comparison.measured import Document
from utils.comparison.report import Report, build_report
from utils.comparison.report_html import html_page
from utils.comparison.report_markdown import markdown
from utils.files.atomic import atomic_text_file


def write_reports(document: Document, folder: Path) -> Report:
    """Write all three into the folder of the comparison; return the report."""
    report = build_report(document)
    for name, text in (
        ("compare.json", json.dumps(document, indent=1)),
        ("compare.md", markdown(report)),
        ("compare.html", html_page(document, report)),
    ):
        with atomic_text_file(folder / name) as file:
            file.write(text)
    return report
