"""The parts of a page, of plain text: paragraphs, tables, bars, lists.

What takes a `str` escapes it and makes it printable; what is `Html` already is put in as it is.

Before: whoever has something to report. After: `document.py` puts the parts on a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple, NewType

from utils.screen.text import printable

Html = NewType("Html", str)

_CODE = re.compile(r"`([^`]+)`|(?<![\w-])(--[a-z][\w-]*)")  # `names`, --img


class Card(NamedTuple):
    """A figure to see first."""

    figure: str
    title: str
    detail: str = ""


class Bar(NamedTuple):
    """One line of a bar chart."""

    label: str
    part: float  # of the full width, from 0 to 1
    value: str


def text(words: str) -> Html:
    """Return a text from anywhere, with nothing in it that a browser would follow."""
    return Html(escape(printable(words)))


def joined(parts: Iterable[Html]) -> Html:
    """Return parts one behind the other."""
    return Html("\n".join(parts))


def prose(words: str) -> Html:
    """Return a text of ours with what is typed, in backquotes or a flag, set apart."""
    return Html(_CODE.sub(_typed, text(words)))


def _typed(found: re.Match[str]) -> str:
    if found[2]:
        return f'<code class="flag">{found[2]}</code>'
    return f"<code>{found[1]}</code>"


def paragraph(words: str) -> Html:
    """Return a paragraph."""
    return Html(f"<p>{prose(words)}</p>")


def soft(words: str) -> Html:
    """Return a paragraph in a softer colour: a note, a unit, a source."""
    return Html(f'<p class="soft">{text(words)}</p>')


def remedy(words: str) -> Html:
    """Return a paragraph that says what to do."""
    return Html(f'<p class="remedy">{prose(words)}</p>')


def warning(words: str) -> Html:
    """Return a paragraph that stands out."""
    return Html(f'<p class="warning" role="alert">{text(words)}</p>')


def code(lines: str) -> Html:
    """Return a command, or lines out of a file, as they are typed."""
    shown = "\n".join(text(line) for line in lines.split("\n"))
    return Html(f"<pre>{shown}</pre>")


def bullets(lines: Iterable[str], ordered: bool = False) -> Html:
    """Return a list; "" of none."""
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    tag = "ol" if ordered else "ul"
    return Html(f'<{tag} class="lines">{items}</{tag}>' if items else "")


def folded(title: str, *blocks: Html) -> Html:
    """Return blocks that are shown when their title is chosen."""
    return Html(f"<details><summary>{text(title)}</summary>{joined(blocks)}</details>")


def section(title: str, *blocks: Html, anchor: str = "") -> Html:
    """Return a part of the page with its heading; "" if none of the blocks shows anything.

    Args:
        anchor: letters, digits and hyphens; `links` leads there.
    """
    shown = joined(block for block in blocks if block)
    if not shown:
        return Html("")
    return Html(f'<section id="{escape(anchor)}"><h2>{text(title)}</h2>{shown}</section>')


def subsection(title: str, *blocks: Html) -> Html:
    """Return a part of a section with its heading."""
    return Html(f"<h3>{text(title)}</h3>{joined(block for block in blocks if block)}")


def links(anchors: Iterable[tuple[str, str]]) -> Html:
    """Return links to sections of the page, of pairs of anchor and text."""
    items = (f'<a href="#{escape(anchor)}">{text(title)}</a>' for anchor, title in anchors)
    return Html(f'<nav class="links">{"".join(items)}</nav>')


def cards(figures: Iterable[Card]) -> Html:
    """Return figures to see first, side by side."""
    items = (
        f'<li><span class="figure">{text(card.figure)}</span>'
        f'<span class="verdict">{text(card.title)}</span><br>'
        f'<span class="soft">{text(card.detail)}</span></li>'
        for card in figures
    )
    return Html(f'<ul class="pairs">{"".join(items)}</ul>')


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], name: str = "") -> Html:
    """Return a table; on a phone each row is a panel that begins with its first cell.

    Args:
        name: letters and hyphens, by which tests find it.
    """
    head = "".join(f"<th>{text(title)}</th>" for title in heading)
    body = []
    for row in rows:
        cells = (
            f'<td data-label="{text(title)}">{text(cell)}</td>'
            for title, cell in zip(heading, row, strict=True)
        )
        body.append(f"<tr>{''.join(cells)}</tr>")
    return Html(
        f'<table data-table="{escape(name)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def bars(rows: Iterable[Bar]) -> Html:
    """Return a bar chart of horizontal bars."""
    lines = "".join(
        f'<div class="label">{text(row.label)}</div><div class="bar"><svg role="img" '
        f'aria-label="{text(f"{row.label}: {row.value}")}"><rect class="amount" y="10%" '
        f'height="80%" width="{100 * row.part:.3f}%"/></svg></div>'
        f'<div class="value">{text(row.value)}</div>'
        for row in rows
    )
    return Html(f'<div class="bars">{lines}</div>')
