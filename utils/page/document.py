"""A whole page: one file that holds everything, needs no network and runs no script.

Before: `blocks.py` and `crops.py` make its parts. After: a reader's browser.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from utils.files.regular import read_text
from utils.page.blocks import Html, joined, text

STYLE = Path(__file__).with_name("page.css")
# With it the browser refuses to load anything for the page but what lies in it.
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


def html_page(title: str, blocks: Iterable[Html], style: Path | None = None) -> str:
    """Return a page.

    Args:
        title: of the page and of the window.
        blocks: the parts in their order.
        style: a file of the project with more rules for this page.
    """
    rules = "".join(read_text(path) for path in (STYLE, style) if path)
    return PAGE.format(policy=POLICY, title=text(title), style=rules, body=joined(blocks))
