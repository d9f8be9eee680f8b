"""The figures of compare.json as text: what was found, a head, warnings, and sections of rows.

Before: `document.py` has the figures, `findings.py` what they say.
After: `report_markdown.py` shows it as compare.md and on the terminal, `report_html.py` as a page,
with charts of the same rows.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from backend.words import count
from utils.comparison.findings import (
    BACKENDS,
    OPTIONS,
    TRAINERS,
    Finding,
    findings,
    summary,
    warnings,
)
from utils.comparison.measured import Document
from utils.comparison.words import NONE, number, stage_name

TITLE = "OneFlow and PyTorch, epoch by epoch"
KINDS = {BACKENDS: "Backends", OPTIONS: "Options", TRAINERS: "Other trainers"}
RATIO_NOTE = (
    "The time of the first divided by that of the second, epoch by epoch: above 1 the first is "
    "slower."
)
TIMES_NOTE = "The median of the counted epochs, and the range from the fastest to the slowest."
LOAD_NOTE = (
    "Cores of others: what other processes took on average while the run went on. More than a "
    "tenth of the cores makes its times doubtful."
)
CELL_COLUMNS = ("trainer", "variant", "batch")


class Table(NamedTuple):
    """A heading and rows of as many texts."""

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]


class Section(NamedTuple):
    """One part of the report; an empty section is left out.

    Attributes:
        name: the page finds the section's chart by it.
        title: heading.
        note: what a reader must know to read the rows.
        findings, table, items: rows of each kind.
        code: blocks that are shown as they are: commands, the ends of logs.
    """

    name: str
    title: str
    note: str = ""
    findings: Sequence[Finding] = ()
    table: Table = Table((), ())
    items: Sequence[str] = ()
    code: Sequence[str] = ()


class Report(NamedTuple):
    """The whole report.

    Attributes:
        summary: what was found and how sure it is, a sentence each.
        head: the machine and the work.
        warnings: what a reader must know before any figure.
    """

    summary: Sequence[str]
    head: Sequence[str]
    warnings: Sequence[str]
    sections: Sequence[Section]


def build_report(document: Document) -> Report:
    """Return the report of a compare.json."""
    cells, found = document["cells"], findings(document)
    sections = [
        *(Section(kind, title, note=RATIO_NOTE, findings=[f for f in found if f.kind == kind])
          for kind, title in KINDS.items()),
        Section("times", "Seconds per epoch", note=TIMES_NOTE, table=times(document)),
        Section("split", "Where the seconds went", table=split(document)),
        Section("outcomes", "What training reached", table=outcomes(document)),
        Section("load", "The load during each run", note=LOAD_NOTE, table=loads(document)),
        Section("notes", "What the runs said about their options",
                items=[f"{cell['name']}: {note}" for cell in cells for note in cell["notes"]]),
        Section("commands", "Commands",
                code=[shlex.join(cell["runs"][0]["command"]) for cell in cells if cell["runs"]]),
        Section("logs", "The ends of the logs of failed runs", code=[
            "\n".join([f"{run['cell']} round {run['round']}:", *run["log_tail"]])
            for cell in cells for run in cell["runs"] if run["log_tail"]
        ]),
    ]  # fmt: skip
    return Report(summary(document), head(document), list(warnings(document)), sections)


def head(document: Document) -> list[str]:
    """Return the machine and the work, a line each."""
    machine, settings = document["machine"], document["settings"]
    frameworks = dict.fromkeys(cell["framework"] for cell in document["cells"])
    facts = [
        machine["processor"], count(machine["cores"], "core"), f"{machine['memory_gib']} GiB",
        *machine["gpus"], machine["system"], *filter(None, frameworks),
        *(f"{name}={value}" for name, value in machine["variables"].items()),
    ]  # fmt: skip
    processes = (
        f", {count(settings['nproc'], 'process', 'processes')} per run"
        if settings["nproc"] > 1
        else ""
    )
    # Absent from documents of an earlier version.
    drawn = f" with --split {part}" if (part := settings.get("train_part")) else ""
    return [
        ", ".join(facts) + ".",
        f"{settings['data']}{drawn}, {settings['cfg'] or settings['weights']}, "
        f"{settings['image_size']} px; {count(settings['rounds'], 'round')} of "
        f"{count(settings['epochs'], 'epoch')} after {settings['warm_up_epochs']} of warm-up, "
        f"in turns{processes}; begun {document['created']}.",
    ]


def stages_of(document: Document) -> list[str]:
    """Return the stages that any cell has, in order."""
    return list(dict.fromkeys(name for cell in document["cells"] for name in cell["stages"]))


def marks(document: Document) -> dict[str, str]:
    """Return by cell the warning that must be shown with its figures."""
    found = {cell["name"]: "not checked for equal work" for cell in document["cells"]
             if not cell["checked"]}  # fmt: skip
    found |= {pair["candidate"]: "unequal work" for pair in document["pairs"] if pair["unequal"]}
    found |= {cell["name"]: "failed" for cell in document["cells"] if cell["failures"]}
    loaded = [cell["name"] for cell in document["cells"] if cell["under_load"]]
    return found | {name: ", ".join([*filter(None, [found.get(name)]), "under load"])
                    for name in loaded}  # fmt: skip


def cell_columns(cell: Document) -> tuple[str, ...]:
    return cell["side"], cell["variant"], str(cell["batch"])


def times(document: Document) -> Table:
    """Return seconds per epoch, speed and memory, one row per cell."""
    marked = marks(document)
    rows = []
    for cell in document["cells"]:
        epoch, process = cell["seconds_per_epoch"], cell["seconds_per_process"]
        rows.append((
            *cell_columns(cell),
            number(epoch and epoch["median"]),
            f"{number(epoch['min'])} to {number(epoch['max'])}" if epoch else NONE,
            number(cell["images_per_second"]),
            number(process and process["median"]),
            number(cell["peak_host_mib"], 1),
            number(cell["peak_device_mib"], 1),
            marked.get(cell["name"], ""),
        ))  # fmt: skip
    return without_empty_columns(
        (*CELL_COLUMNS, "s/epoch", "min to max", "images/s", "process s", "host MiB",
         "device MiB", "mark"),
        rows,
    )  # fmt: skip


def without_empty_columns(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of the columns in which a row has a value."""
    kept = [i for i in range(len(heading)) if any(row[i] not in ("", NONE) for row in rows)]
    return Table([heading[i] for i in kept], [[row[i] for i in kept] for row in rows])


def loads(document: Document) -> Table:
    """Return what else the machine had to do, one row per run."""
    rows = []
    for cell in document["cells"]:
        busy = {run["round"] for run in cell["under_load"]}
        for run in cell["runs"]:
            load = run.get("load", {})
            rows.append((
                *cell_columns(cell),
                str(run["round"]),
                number(load.get("others"), 2),
                number(load.get("before")),
                number(load.get("after")),
                number(run.get("process_seconds")),
                number(run.get("processor_seconds")),
                "under load" if run["round"] in busy else "",
            ))  # fmt: skip
    return without_empty_columns(
        (*CELL_COLUMNS, "round", "cores of others", "load before", "load after", "process s",
         "processor s", "mark"),
        rows,
    )  # fmt: skip


def split(document: Document) -> Table:
    """Return where an epoch's seconds went, one row per cell."""
    stages = stages_of(document)
    rows = [
        (*cell_columns(cell), *(number(cell["stages"].get(stage)) for stage in stages))
        for cell in document["cells"] if cell["stages"]
    ]  # fmt: skip
    return Table((*CELL_COLUMNS, *map(stage_name, stages)), rows)


def outcomes(document: Document) -> Table:
    """Return what training reached in the last counted epoch, one row per cell, by the names that
    the cells have: each task has its own losses and figures.
    """
    reached = [(cell, last) for cell in document["cells"] if (last := cell["last_epoch"])]
    parts = ("train", "metrics")
    names = [(part, name) for part in parts for _, last in reached for name in last[part]]
    columns = tuple(dict.fromkeys(names))
    rows = []
    for cell, last in reached:
        values = (last[part].get(name) for part, name in columns)
        rows.append((*cell_columns(cell), *(NONE if v is None else f"{v:.5f}" for v in values)))
    heading = (name.replace("_loss", " loss") for _, name in columns)
    return Table((*CELL_COLUMNS, *heading), rows)
