"""Tutorials as notebooks: their text, the Python of their blocks, and what it printed.

Commands of `duet` run in a shell line, all others stay text, as does what only a page can show:
figures, and links between pages.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
INCLUDED = re.compile(r'\s*--8<-- "([\w/.-]+)(?::([\w-]+))?"\s*')
MARK = re.compile(r"^--8<-- \[.*\]\n|^# --8<-- \[.*\]\n", re.MULTILINE)
FOR_TESTS = re.compile(r"^# (?:Runs|Needs|Shows lines|Numbers) .*\n", re.MULTILINE)
FIGURE = re.compile(r"!\[[^\]]*\]\([^)]*\)(?:\{[^}]*\})?|</?fig[^>]*>")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
FOLDED = re.compile(r'^(?:\?\?\?|!!!|===) ?\w* ?"([^"]*)"\n((?:\n| {4}.*\n?)*)', re.MULTILINE)


def notebook(markdown: str, docs: Path) -> str:
    """Return a page as a notebook, in JSON.

    Args:
        markdown: of the page, with its values put in.
        docs: the folder below which its blocks lie.
    """
    cells: list[dict[str, Any]] = []
    for kind, text in _pieces(FOLDED.sub(_unfolded, markdown), docs):
        if kind == "output":
            cells[-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]
        elif kind == "code":
            more = {"execution_count": None, "outputs": []}
            cells.append({"cell_type": "code", "metadata": {}, "source": text, **more})
        elif text.strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": text.strip()})
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document = {"cells": cells, "metadata": {"kernelspec": kernel}}
    return json.dumps({**document, "nbformat": 4, "nbformat_minor": 5}, ensure_ascii=False)


def _pieces(markdown: str, docs: Path) -> Iterator[tuple[str, str]]:
    """Yield "text", "code" and "output" in order; output follows its code."""
    end, ran = 0, False
    for fence in FENCE.finditer(markdown):
        between = markdown[end : fence.start()]
        yield "text", LINK.sub(r"\1", FIGURE.sub("", between))
        language, body = fence[1], _included(fence[2], docs)
        end = fence.end()
        commands = re.sub(r" *\\\n *", " ", body).splitlines()
        if language == "python":
            yield "code", body.strip("\n")
            ran = True
        elif language == "bash" and all(line.startswith("duet ") for line in commands):
            yield "code", "\n".join(f"!{line}" for line in commands)
            ran = True
        elif language == "text" and ran and not between.strip():
            yield "output", body
        else:
            yield "text", f"```{language}\n{body}```"
            ran = False
    yield "text", LINK.sub(r"\1", FIGURE.sub("", markdown[end:]))


def _included(body: str, docs: Path) -> str:
    """Return the text that a fence includes, or its own."""
    found = INCLUDED.fullmatch(body)
    if not found:
        return body
    text = (docs / found[1]).read_text(encoding="utf-8")
    if found[2]:
        start, end = (f"--8<-- [{edge}:{found[2]}]" for edge in ("start", "end"))
        text = text.partition(start)[2].partition("\n")[2].partition(end)[0].removesuffix("# ")
    return FOR_TESTS.sub("", MARK.sub("", text))


def _unfolded(match: re.Match[str]) -> str:
    """Return what is folded, or in a tab, as a paragraph with a title."""
    body = re.sub(r"^ {4}", "", match[2], flags=re.MULTILINE)
    return f"**{match[1]}**\n{body if body.startswith(chr(10)) else chr(10) + body}"
