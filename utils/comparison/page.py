"""compare.json, compare.md and compare.html: the document, and its report in two forms.

The page holds everything, needs no network and runs no script. Its charts are images in SVG.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from utils.comparison.report import (
    BACKENDS,
    OPTIONS,
    STAGES,
    TITLE,
    Report,
    Section,
    build_report,
    kind_of,
    markdown,
)
from utils.comparison.statistics import Document, stage_name
from utils.errors import UserError
from utils.files.atomic import atomic_text_file
from utils.files.json import read_json
from utils.page.document import Html, bullets, code, html_page, section, table, text, warning
from utils.report.plots.style import GREY, INK, line_colour, new_figure
from utils.screen.text import printable, printable_lines

WIDTH = 9.0  # inches of a chart
ROW = 0.28  # of a bar


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
        if not isinstance(document, dict) or not {"machine", "created"} <= document.keys():
            raise ValueError("it holds no comparison")
    except (OSError, ValueError) as error:
        raise UserError(f"--resume {folder}: compare.json: {error}; remove that file") from error
    return document


def write_reports(document: Document, folder: Path) -> Report:
    """Write all three into the folder of the comparison; return the report."""
    report = build_report(document)
    for name, content in (
        ("compare.json", json.dumps(document, indent=1)),
        ("compare.md", printable_lines(markdown(report))),
        ("compare.html", page_of(document, report)),
    ):
        with atomic_text_file(folder / name) as file:
            file.write(content)
    return report


def page_of(document: Document, report: Report) -> str:
    """Return the whole page."""
    blocks = [*map(warning, report.warnings), bullets(report.head)]
    return html_page(TITLE, [*blocks, *(_section(part, document) for part in report.sections)])


def _section(part: Section, document: Document) -> Html:
    rows = table(part.table[0], part.table[1:]) if part.table else Html("")
    chart = CHARTS.get(part.title)
    drawn = chart(document) if chart else None
    note = Html(f'<p class="soft">{text(part.note)}</p>' if part.note else "")
    shown = [bullets(part.items), _image(drawn, part.title) if drawn else Html(""), rows]
    shown = [block for block in (*shown, *map(code, part.code)) if block]
    return section(part.title, note, *shown) if shown else Html("")


def _image(figure: Any, title: str) -> Html:
    """Return a figure as an image that is part of the page."""
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None})
    encoded = base64.b64encode(content.getvalue()).decode()
    style = "max-width: 100%; background: white"  # also where the page is dark
    return Html(f'<img style="{style}" alt="{text(title)}" '
                f'src="data:image/svg+xml;base64,{encoded}">')  # fmt: skip


def ratio_chart(document: Document, kind: str) -> Any:
    """Draw each pair's ratio of one section, with the range of its epochs; None for no ratio."""
    cells = {cell["name"]: cell for cell in document["cells"]}
    pairs = [x for x in document["pairs"] if x["ratio"] and kind_of(x, cells) == kind]
    if not pairs:
        return None
    figure, axes = _rows([f"{x['candidate']} / {x['reference']}" for x in pairs])
    for row, ratio in enumerate(pair["ratio"] for pair in pairs):
        axes.plot([ratio["min"], ratio["max"]], [row, row], color=GREY, linewidth=4)
        axes.plot([ratio["median"]], [row], "o", color=INK)
    axes.axvline(1, color=INK, linewidth=1, linestyle="--")
    axes.set(xscale="log", xlabel="ratio of times; left of 1 the first is faster")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    return figure


def stage_chart(document: Document) -> Any:
    """Draw the stages of an epoch of each cell, one behind the other."""
    cells = [cell for cell in document["cells"] if cell["stages"]]
    if not cells:
        return None
    figure, axes = _rows([cell["name"] for cell in cells])
    start = [0.0] * len(cells)
    for index, stage in enumerate(dict.fromkeys(x for cell in cells for x in cell["stages"])):
        seconds = [cell["stages"].get(stage, 0.0) for cell in cells]
        colour = line_colour(index)
        axes.barh(range(len(cells)), seconds, left=start, color=colour, label=stage_name(stage))
        start = [before + more for before, more in zip(start, seconds, strict=True)]
    axes.set_xlabel("seconds")
    axes.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.25), frameon=False)
    return figure


def _rows(names: Sequence[str]) -> tuple[Any, Any]:
    """Return a figure with a named row for each bar, the first on top."""
    figure, axes = new_figure(1, 1, WIDTH, 1.2 + ROW * len(names))
    axes.set_yticks(range(len(names)), map(_label, names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    return figure, axes


def _label(name: str) -> str:
    return printable(name).replace("$", r"\$")


CHARTS: Mapping[str, Callable[[Document], Any]] = {
    **{kind: partial(ratio_chart, kind=kind) for kind in (BACKENDS, OPTIONS)},
    STAGES: stage_chart,
}  # by the title of their section
