"""compare.md: the comparison as tables that any Markdown viewer shows.

Before: `document.py`. After: a reader, and docs/compare.md, which holds such tables.
"""

from __future__ import annotations

import shlex

from utils.comparison.document import warnings
from utils.comparison.measured import Document
from utils.comparison.tables import (
    Table,
    outcomes,
    pair_losses,
    pair_means,
    processes_of_a_run,
    sentence,
    split,
    times,
)


def markdown(document: Document) -> str:
    """The whole report."""
    settings = document["settings"]
    lines = ["# OneFlow and PyTorch, epoch by epoch", ""]
    if document["status"] != "complete":
        lines += [f"**This comparison is {document['status']}: figures are missing.**", ""]
    lines += [f"> **{_escaped(warning)}**\n" for warning in warnings(document)]
    lines += [
        machine_line(document) + ".",
        f"{_escaped(settings['data'])}, {_escaped(settings['cfg'] or settings['weights'])}, "
        f"{settings['image_size']} px; {settings['rounds']} rounds of {settings['epochs']} epochs "
        f"after {settings['warm_up_epochs']} of warm-up, in turns"
        f"{processes_of_a_run(settings['nproc'])}.",
        "",
        "## Seconds per epoch",
        "",
        *_table(times(document)),
        "## Pair by pair",
        "",
    ]
    for pair in document["pairs"]:
        parts = (sentence(pair), pair_losses(pair), pair_means(pair))
        lines.append(f"- {_escaped('; '.join(part for part in parts if part))}")
    lines += ["", "## Where the seconds went", "", *_table(split(document))]
    lines += ["## What training reached", "", *_table(outcomes(document))]
    lines += ["## Commands", "", "```", *commands(document), "```", *_notes(document)]
    return "\n".join(lines) + "\n"


def machine_line(document: Document) -> str:
    """The machine in one line."""
    machine = document["machine"]
    parts = [machine["processor"], f"{machine['cores']} cores", f"{machine['memory_gib']} GiB"]
    parts += [*machine["gpus"], machine["system"]]
    parts += [f"{name}={value}" for name, value in machine["variables"].items()]
    return ", ".join(parts)


def commands(document: Document) -> list[str]:
    """The exact command of each cell's first run."""
    return [shlex.join(cell["runs"][0]["command"]) for cell in document["cells"] if cell["runs"]]


def _notes(document: Document) -> list[str]:
    """What runs said about their options."""
    lines = [f"- {cell['name']}: {note}" for cell in document["cells"] for note in cell["notes"]]
    return ["", "## What the runs said about their options", "", *map(_escaped, lines)] * bool(
        lines
    )


def _table(table: Table) -> list[str]:
    rules = [":--" if column < 2 else "--:" for column in range(len(table.heading))]
    rows = [table.heading, rules, *table.rows]
    return [*("| " + " | ".join(map(_escaped, row)) + " |" for row in rows), ""]


def _escaped(text: str) -> str:
    """Names are the user's: none may end a cell or become markup."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
