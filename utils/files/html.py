"""Build self-contained HTML pages that need no network and run no scripts.

A `str` is escaped and made printable; `Html` is inserted unchanged.
"""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NewType

from duet.utils.files.regular import read_text
from duet.utils.text import printable

Html = NewType("Html", str)
STYLE = Path(__file__).with_name("page.css")
# Keeps the browser from loading anything outside the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head><body><main>
<h1>{title}</h1>
{body}
</main></body></html>
"""


def html_page(title: str, blocks: Iterable[Html]) -> str:
    style, body = read_text(STYLE), "\n".join(blocks)
    return PAGE.format(policy=POLICY, title=text(title), style=style, body=body)


def text(words: str) -> Html:
    return Html(escape(printable(words)))


def paragraph(words: str) -> Html:
    return Html(f"<p>{text(words)}</p>" if words else "")


def warning(words: str) -> Html:
    return Html(f'<p class="warning" role="alert">{text(words)}</p>')


def bullets(lines: Iterable[str]) -> Html:
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return Html(f'<ul class="lines">{items}</ul>' if items else "")


def svg_image(content: bytes, alternative: str) -> Html:
    """Return a chart with its alternative text; the background is always white."""
    encoded = base64.b64encode(content).decode()
    return Html(f'<img style="max-width: 100%; background: white" alt="{text(alternative)}" '
                f'src="data:image/svg+xml;base64,{encoded}">')  # fmt: skip


def section(title: str, *blocks: Html, level: int = 2) -> Html:
    """Return a section with a heading; level 3 for a subsection."""
    heading = f"<h{level}>{text(title)}</h{level}>"
    return Html(f"<section>{heading}{''.join(blocks)}</section>")


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return a table; on a phone each row becomes a panel headed by its first cell."""
    head = "".join(f"<th>{text(title)}</th>" for title in heading)
    body = []
    for row in rows:
        cells = (
            f'<td data-label="{text(title)}">{text(cell)}</td>'
            for title, cell in zip(heading, row, strict=True)
        )
        body.append(f"<tr>{''.join(cells)}</tr>")
    return Html(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>")
