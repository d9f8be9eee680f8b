"""The figures of compare.json as rows of text, which all reports show alike.

Before: `document.py`. After: `terminal.py`, `report_markdown.py`, `report_html.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from utils.comparison.measured import Document

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


class Table(NamedTuple):
    """A heading and rows of as many texts."""

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits or so, without an exponent."""
    if value is None or value != value:
        return NONE
    whole = int(abs(value))
    decimals = digits - len(str(whole)) if whole else digits
    return f"{value:.{max(decimals, 0)}f}"


def stage_name(name: str) -> str:
    return STAGE_NAMES.get(name, name.replace("_", " "))


def stages_of(document: Document) -> list[str]:
    """The stages that any cell has, in order."""
    return list(dict.fromkeys(name for cell in document["cells"] for name in cell["stages"]))


def marks(document: Document) -> dict[str, str]:
    """By cell: what its figures must not be read without."""
    found = {cell["name"]: "not checked for equal work" for cell in document["cells"]
             if not cell["checked"]}  # fmt: skip
    for pair in document["pairs"]:
        if pair["unequal"]:
            found[pair["candidate"]] = "unequal work"
    return found | {cell["name"]: "failed" for cell in document["cells"] if cell["failures"]}


def times(document: Document) -> Table:
    """Seconds per epoch and what belongs to them, a row a cell."""
    marked = marks(document)
    rows = []
    for cell in document["cells"]:
        epoch, process = cell["seconds_per_epoch"], cell["seconds_per_process"]
        rows.append((
            cell["side"],
            cell["variant"],
            str(cell["batch"]),
            number(epoch and epoch["median"]),
            f"{number(epoch['min'])} to {number(epoch['max'])}" if epoch else NONE,
            number(cell["images_per_second"]),
            number(process and process["median"]),
            number(cell["peak_host_mib"], 1),
            number(cell["peak_device_mib"], 1),
            marked.get(cell["name"], ""),
        ))  # fmt: skip
    return Table(
        ("trainer", "variant", "batch", "s/epoch", "min to max", "images/s", "process s",
         "host MiB", "device MiB", "mark"),
        rows,
    )  # fmt: skip


def split(document: Document) -> Table:
    """Where an epoch's seconds went, a row a cell."""
    stages = stages_of(document)
    rows = [
        (cell["side"], cell["variant"], str(cell["batch"]),
         *(number(cell["stages"].get(stage)) for stage in stages))
        for cell in document["cells"] if cell["stages"]
    ]  # fmt: skip
    return Table(("trainer", "variant", "batch", *(stage_name(stage) for stage in stages)), rows)


def outcomes(document: Document) -> Table:
    """What training reached in the last counted epoch, a row a cell."""
    rows = []
    for cell in document["cells"]:
        last = cell["last_epoch"]
        if last is None:
            continue
        losses = (last["train"][f"{term}_loss"] for term in ("box", "obj", "cls"))
        metrics = (last["metrics"][name] for name in ("mAP_0.5", "mAP_0.5:0.95"))
        rows.append((
            cell["side"], cell["variant"], str(cell["batch"]),
            *(NONE if value is None else f"{value:.5f}" for value in (*losses, *metrics)),
        ))  # fmt: skip
    return Table(
        ("trainer", "variant", "batch", "box", "objectness", "class", "mAP50", "mAP50-95"), rows
    )


def processes_of_a_run(number: int) -> str:
    """How many share its work, in words that go on a list; "" for one."""
    return f", {number} processes a run" if number > 1 else ""


def sentence(pair: Document) -> str:
    """The ratio of a pair in words."""
    names = f"{pair['candidate']} against {pair['reference']}"
    if pair["ratio"] is None:
        return f"{names}: refused, the work is not equal"
    ratio = pair["ratio"]
    text = f"{names}: {number(ratio['median'])} times the time ({ratio_range(pair)}): "
    text += pair["verdict"]
    if not pair["checked"]:
        text += "; not checked for equal work"
    if pair["unequal"]:
        text += "; UNEQUAL WORK"
    return text


def ratio_range(pair: Document) -> str:
    """Smallest and largest ratio, and of how many pairs of what."""
    ratio = pair["ratio"]
    pairs = "pair" if ratio["count"] == 1 else "pairs"
    of = "epochs" if pair["measure"] == "epoch" else "whole processes"
    return f"{number(ratio['min'])} to {number(ratio['max'])} in {ratio['count']} {pairs} of {of}"


def pair_means(pair: Document) -> str:
    """By which other means the candidate did the same work, in words; "" for none."""
    return f"by other means: {'; '.join(pair['means'])}" if pair["means"] else ""


def pair_losses(pair: Document) -> str:
    """How far the losses are apart, in words; "" for none."""
    gap = pair["losses"]
    if gap is None:
        return ""
    if gap["worst"] is None:
        return f"a loss of batch {gap['worst_batch']} is not finite"
    return (
        f"losses at most {gap['worst']:.1e} apart in the first {gap['batches']} batches "
        f"(accepted: {gap['tolerance']:g})"
    )
