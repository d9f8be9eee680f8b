"""compare.html: one page that holds everything, needs no network and runs no script.

Before: `document.py`. After: a reader's browser; `tests/unit/comparison/test_page.py` reads it.
"""

from __future__ import annotations

from html import escape

from utils.comparison.document import warnings
from utils.comparison.measured import Document
from utils.comparison.page_charts import epoch_bars, loss_curves, memory_bars, stage_bars
from utils.comparison.page_style import STYLE
from utils.comparison.report_markdown import commands
from utils.comparison.tables import (
    NONE,
    Table,
    number,
    outcomes,
    pair_losses,
    pair_means,
    processes_of_a_run,
    ratio_range,
    split,
    times,
)

# The browser itself then refuses whatever this page might load, from anywhere.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_page(document: Document) -> str:
    """The whole page."""
    sections = (
        _head(document),
        "<h2>Pair by pair</h2><p class='soft'>The time of the first divided by that of the second, "
        "epoch by epoch: above 1 the first is slower.</p>" + _pairs(document),
        "<h2>Seconds per epoch</h2><p class='soft'>The bar is the median, the line on it reaches "
        "from the fastest epoch to the slowest.</p>"
        + epoch_bars(document)
        + _table("times", times(document)),
        "<h2>Where the seconds went</h2>" + stage_bars(document) + _table("split", split(document)),
        "<h2>Losses</h2><p class='soft'>Box, objectness and class loss together, batch by batch "
        "from the first on, both sides over each other.</p>"
        + loss_curves(document)
        + _table("outcomes", outcomes(document)),
        "<h2>Memory</h2>" + memory_bars(document, "host") + memory_bars(document, "device"),
        "<h2>Machine</h2>" + _machine(document),
        "<h2>Commands</h2>" + _commands(document),
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>OneFlow and PyTorch, epoch by epoch</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(f"<section>{section}</section>" for section in sections)
        + "\n</body></html>\n"
    )


def _head(document: Document) -> str:
    settings = document["settings"]
    what = (
        f"{settings['data']}, {settings['cfg'] or settings['weights']}, "
        f"{settings['image_size']} px; {settings['rounds']} rounds in turns, each "
        f"{settings['epochs']} epochs after {settings['warm_up_epochs']} of warm-up"
        f"{processes_of_a_run(settings['nproc'])}; "
        f"{document['created']}"
    )
    lines = list(warnings(document))
    if document["status"] != "complete":
        lines.append(f"This comparison is {document['status']}: figures are missing.")
    alarms = "".join(f'<p class="warning" role="alert">{escape(line)}</p>' for line in lines)
    return f"<h1>OneFlow and PyTorch, epoch by epoch</h1><p class='soft'>{escape(what)}</p>{alarms}"


def _pairs(document: Document) -> str:
    return f'<ul class="pairs">{"".join(map(_pair, document["pairs"]))}</ul>'


def _pair(pair: Document) -> str:
    ratio = pair["ratio"]
    shown = f"{number(ratio['median'])} ×" if ratio else NONE
    parts = [f'<span class="ratio">{shown}</span>']
    parts.append(f"{escape(pair['candidate'])} against {escape(pair['reference'])}<br>")
    parts.append(f'<span class="verdict">{escape(pair["verdict"] or "")}</span><br>')
    details = []
    if ratio:
        details.append(ratio_range(pair))
    if losses := pair_losses(pair):
        bad = ' class="bad"' if pair["losses"]["diverged"] else ""
        details.append(f"<span{bad}>{escape(losses)}</span>")
    if means := pair_means(pair):
        details.append(escape(means))
    if not pair["checked"]:
        details.append('<span class="bad">not checked for equal work</span>')
    if pair["unequal"]:
        details.append('<span class="bad">unequal work</span>')
    elif pair["by_design"]:
        details.append(f"differs on purpose in {escape(', '.join(pair['by_design']))}")
    parts.append(f'<span class="soft">{"; ".join(details)}</span>')
    names = escape(f"{pair['candidate']}/{pair['reference']}")
    return f'<li data-pair="{names}">{"".join(parts)}</li>'


def _table(name: str, table: Table) -> str:
    if not table.rows:
        return ""
    heading = "".join(f"<th>{escape(text)}</th>" for text in table.heading)
    rows = []
    for row in table.rows:
        cells = (
            f'<td data-label="{escape(title)}">{_marked(title, text)}</td>'
            for title, text in zip(table.heading, row, strict=True)
        )
        rows.append(f'<tr data-cell="{escape("-".join(row[:2]))}-b{row[2]}">{"".join(cells)}</tr>')
    return (
        f'<h3>In figures</h3><table data-table="{name}"><thead><tr>{heading}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _marked(title: str, text: str) -> str:
    return f'<span class="bad">{escape(text)}</span>' if title == "mark" and text else escape(text)


def _machine(document: Document) -> str:
    machine = document["machine"]
    rows = {
        "processor": machine["processor"],
        "cores": str(machine["cores"]),
        "memory": f"{machine['memory_gib']} GiB",
        "GPUs": ", ".join(machine["gpus"]) or "none",
        "system": machine["system"],
        **machine["variables"],
    }
    for cell in document["cells"]:
        if cell["framework"]:
            rows.setdefault(cell["side"], cell["framework"])
    items = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows.items())
    return f"<dl>{''.join(items)}</dl>"


def _commands(document: Document) -> str:
    lines = "".join(f"<pre>{escape(command)}</pre>" for command in commands(document))
    notes = "".join(
        f"<li>{escape(cell['name'])}: {escape(note)}</li>"
        for cell in document["cells"]
        for note in cell["notes"]
    )
    said = f"<h3>What the runs said about their options</h3><ul>{notes}</ul>" if notes else ""
    failures = "".join(
        f"<h3>The end of the log of {escape(run['cell'])}</h3>"
        f"<pre>{escape(chr(10).join(run['log_tail']))}</pre>"
        for cell in document["cells"]
        for run in cell["runs"]
        if run["log_tail"]
    )
    return lines + said + failures
