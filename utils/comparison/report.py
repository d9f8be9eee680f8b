"""The figures of compare.json as text: a head, warnings, and sections of rows.

Before: `document.py`. After: `report_markdown.py` shows it as compare.md and on the terminal,
`report_html.py` as a page, with charts beside the same rows.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from backend.words import count
from utils.comparison.measured import Document

TITLE = "OneFlow and PyTorch, epoch by epoch"
STAGE_NAMES = {
    "data_wait": "data wait",
    "to_device": "to device",
    "forward": "forward",
    "loss": "targets and loss",
    "backward": "backward",
    "optimizer": "optimizer",
    "ema": "EMA",
    "validation": "validation",
    "other": "other",
}
NONE = "–"
RATIO_NOTE = (
    "The time of the first divided by that of the second, epoch by epoch: above 1 the first is "
    "slower."
)
CELL_COLUMNS = ("trainer", "variant", "batch")


class Table(NamedTuple):
    """A heading and rows of as many texts."""

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]


class Finding(NamedTuple):
    """The comparison of two cells' times.

    Attributes:
        names: "candidate against reference".
        ratio: the candidate's time by the reference's; NONE where the work is not equal.
        spread: smallest and largest ratio, and the number of pairs; "" without a ratio.
        verdict: what the ratios say.
        alarms: warnings that must be shown with the ratio.
        details: further facts.
    """

    names: str
    ratio: str
    spread: str
    verdict: str
    alarms: Sequence[str]
    details: Sequence[str]


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
    """The whole report."""

    head: Sequence[str]
    warnings: Sequence[str]
    sections: Sequence[Section]


def build_report(document: Document) -> Report:
    """Return the report of a compare.json."""
    cells = document["cells"]
    loaded = {cell["name"] for cell in cells if cell["under_load"]}
    sections = [
        Section("pairs", "Pair by pair", note=RATIO_NOTE,
                findings=[finding(pair, loaded) for pair in document["pairs"]]),
        Section("times", "Seconds per epoch", table=times(document)),
        Section("split", "Where the seconds went", table=split(document)),
        Section("outcomes", "What training reached", table=outcomes(document)),
        Section("notes", "What the runs said about their options",
                items=[f"{cell['name']}: {note}" for cell in cells for note in cell["notes"]]),
        Section("commands", "Commands",
                code=[shlex.join(cell["runs"][0]["command"]) for cell in cells if cell["runs"]]),
        Section("logs", "The ends of the logs of failed runs", code=[
            "\n".join([f"{run['cell']} round {run['round']}:", *run["log_tail"]])
            for cell in cells for run in cell["runs"] if run["log_tail"]
        ]),
    ]  # fmt: skip
    return Report(head(document), list(warnings(document)), sections)


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
        f", {count(settings['nproc'], 'process', 'processes')} a run"
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


def warnings(document: Document) -> Iterator[str]:
    """Yield the warnings that a reader must see before any figure, worst first."""
    for pair in document["pairs"]:
        gap, names = pair["losses"], f"{pair['candidate']} against {pair['reference']}"
        if gap and gap["worst"] is None:
            yield f"LOSSES DIVERGE: {names}: a loss of batch {gap['worst_batch']} is not finite"
        elif gap and gap["diverged"]:
            yield (
                f"LOSSES DIVERGE: {pair['candidate']} is {gap['worst']:.1%} away from "
                f"{pair['reference']} in batch {gap['worst_batch']}; "
                f"up to {gap['tolerance']:.0%} is accepted in the first {_batches(gap)}"
            )
    for pair in document["pairs"]:
        if pair["unequal"]:
            names = f"{pair['candidate']} against {pair['reference']}"
            yield f"UNEQUAL WORK: {names}: {'; '.join(pair['unequal'])}"
    for cell in document["cells"]:
        if cell["under_load"]:
            worst = max(cell["under_load"], key=lambda run: run["others"])
            cores = count(document["machine"]["cores"], "core")
            yield (
                f"UNDER LOAD: {cell['name']}: other processes took {worst['others']:.1f} of "
                f"{cores} in round {worst['round']}; run it again when the machine is idle"
            )
    for cell in document["cells"]:
        if cell["failures"]:
            yield f"FAILED: {cell['name']}: {cell['failures'][0]}"
    if document["status"] != "complete":
        yield f"This comparison is {document['status']}: figures are missing."


def _batches(gap: Document) -> str:
    return count(gap["batches"], "batch", "batches")


def finding(pair: Document, loaded: Set[str]) -> Finding:
    """Return a pair in words.

    Args:
        loaded: cells that were measured while others used the machine.
    """
    ratio, gap = pair["ratio"], pair["losses"]
    alarms, details = [], []
    if not pair["checked"]:
        alarms.append("not checked for equal work")
    if pair["unequal"]:
        alarms.append("UNEQUAL WORK")
    elif pair["by_design"]:
        details.append(f"differs on purpose in {', '.join(pair['by_design'])}")
    if gap and gap["worst"] is None:
        alarms.append(f"a loss of batch {gap['worst_batch']} is not finite")
    elif gap:
        (alarms if gap["diverged"] else details).append(
            f"losses at most {gap['worst']:.1e} apart in the first {_batches(gap)} "
            f"(accepted: {gap['tolerance']:g})"
        )
    if loaded & {pair["reference"], pair["candidate"]}:
        alarms.append("taken under load")
    if pair["means"]:
        details.append(f"by other means: {'; '.join(pair['means'])}")
    return Finding(
        f"{pair['candidate']} against {pair['reference']}",
        number(ratio["median"]) if ratio else NONE,
        ratio_range(pair) if ratio else "",
        pair["verdict"] if ratio else "refused, the work is not equal",
        alarms,
        details,
    )


def ratio_range(pair: Document) -> str:
    """Return the smallest and largest ratio, and the number and kind of pairs."""
    ratio = pair["ratio"]
    of = "epochs" if pair["measure"] == "epoch" else "whole processes"
    pairs = f"{count(ratio['count'], 'pair')} of {of}"
    return f"{number(ratio['min'])} to {number(ratio['max'])} in {pairs}"


def number(value: float | None, digits: int = 3) -> str:
    """Return about three significant digits, without an exponent."""
    if value is None or value != value:
        return NONE
    whole = int(abs(value))
    decimals = digits - len(str(whole)) if whole else digits
    return f"{value:.{max(decimals, 0)}f}"


def stage_name(name: str) -> str:
    return STAGE_NAMES.get(name, name.replace("_", " "))


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
    """Return seconds per epoch, speed and memory, a row a cell."""
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
    return Table(
        (*CELL_COLUMNS, "s/epoch", "min to max", "images/s", "process s", "host MiB",
         "device MiB", "mark"),
        rows,
    )  # fmt: skip


def split(document: Document) -> Table:
    """Return where an epoch's seconds went, a row a cell."""
    stages = stages_of(document)
    rows = [
        (*cell_columns(cell), *(number(cell["stages"].get(stage)) for stage in stages))
        for cell in document["cells"] if cell["stages"]
    ]  # fmt: skip
    return Table((*CELL_COLUMNS, *map(stage_name, stages)), rows)


def outcomes(document: Document) -> Table:
    """Return what training reached in the last counted epoch, a row a cell: by the names that the
    cells have, since each task has its own losses and figures.
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
