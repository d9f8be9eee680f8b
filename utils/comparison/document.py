"""All measurements as one JSON document, compare.json; docs/en/compare.md describes it.

Before: `execution.py` saved a record of each run. After: the reports, which read nothing else.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from utils.comparison.equality import differences, loss_gap, other_means, unequal_rounds
from utils.comparison.load import disturbs
from utils.comparison.measured import Document
from utils.comparison.plan import Cell, Pair, make_cells, make_pairs
from utils.comparison.settings import Settings
from utils.comparison.statistics import (
    counted_epochs,
    epoch_ratios,
    process_ratios,
    spread,
    verdict,
)
from utils.errors import UserError

SCHEMA = 1
Records = Mapping[Cell, Sequence[Document]]


class UnequalWorkError(UserError):
    """The runs to compare did not do the same work; the message lists the differences."""


def cells_of(settings: Settings) -> list[Cell]:
    names = [external.name for external in settings.externals]
    return make_cells(settings.backends, settings.variants, settings.batches, names)


def build_document(
    settings: Settings, records: Records, machine: Mapping[str, Any], status: str, created: str
) -> Document:
    """Return the comparison so far.

    Args:
        records: of the runs so far, by cell, in order of their rounds.
        machine: from `machine.describe_machine`.
        status: "running", "complete", "interrupted" or "refused".
        created: date and time.
    """
    cells = cells_of(settings)
    return {
        "schema": SCHEMA,
        "created": created,
        "status": status,
        "machine": dict(machine),
        "settings": asdict(settings),
        "cells": [describe_cell(cell, records.get(cell, ()), machine["cores"]) for cell in cells],
        "pairs": [
            described
            for pair in make_pairs(cells)
            if (described := describe_pair(pair, records, settings)) is not None
        ],
    }


def good(runs: Sequence[Document]) -> list[Document]:
    return [run for run in runs if run["failure"] is None]


def describe_cell(cell: Cell, runs: Sequence[Document], cores: int) -> Document:
    """Return a cell's figures over all its runs, and the runs themselves."""
    done = good(runs)
    epochs = [epoch for run in done for epoch in counted_epochs(run)]
    last = counted_epochs(done[-1])[-1:] if done else []
    host = [run["peak_host_mib"] for run in done]
    device = [mib for run in done if (mib := run["peak_device_mib"]) is not None]
    return {
        "name": cell.name,
        "side": cell.side,
        "variant": cell.variant,
        "batch": cell.batch,
        "checked": not cell.external,
        "processes": next((run["work"].get("processes") for run in done if run["work"]), None),
        "framework": next((run["framework"] for run in done if "framework" in run), None),
        "under_load": [
            {"round": run["round"], "others": others}
            for run in done
            if disturbs(others := run.get("load", {}).get("others"), cores)
        ],
        "failures": [run["failure"] for run in runs if run["failure"]],
        "unequal": [] if cell.external else unequal_rounds(done),
        "notes": list(dict.fromkeys(note for run in done for note in run.get("notes", []))),
        "seconds_per_epoch": _spread([epoch["seconds"] for epoch in epochs]),
        "seconds_per_process": _spread([run["process_seconds"] for run in done]),
        "images_per_second": _images_per_second(done, epochs),
        "stages": _stages(epochs),
        "peak_host_mib": max(host, default=None),
        "peak_device_mib": max(device, default=None),
        "last_epoch": {name: last[0][name] for name in ("train", "val", "metrics")}
        if last and "train" in last[0]
        else None,
        "runs": list(runs),
    }


def _spread(values: Sequence[float]) -> Document | None:
    found = spread(values)
    return asdict(found) if found else None


def _images_per_second(runs: Sequence[Document], epochs: Sequence[Document]) -> float | None:
    """Return the median of training images per second, without validation."""
    if not runs or not runs[0]["work"] or not epochs:
        return None
    images = int(runs[0]["work"]["train_images"])
    return statistics.median(
        images / (epoch["seconds"] - epoch["stages"].get("validation", 0.0)) for epoch in epochs
    )


def _stages(epochs: Sequence[Document]) -> dict[str, float]:
    """Return median seconds of each stage, and of the rest: plots, weights, bookkeeping."""
    split = [epoch["stages"] for epoch in epochs if "stages" in epoch]
    if not split:
        return {}
    stages = {name: statistics.median(row[name] for row in split) for name in split[0]}
    rest = [epoch["seconds"] - sum(epoch["stages"].values()) for epoch in epochs]
    return {**stages, "other": max(statistics.median(rest), 0.0)}


def describe_pair(pair: Pair, records: Records, settings: Settings) -> Document | None:
    """Compare a candidate's times with its reference's; None before both ran."""
    reference, candidate = (good(records.get(cell, ())) for cell in pair)
    if not reference or not candidate:
        return None
    checked = not pair.candidate.external
    unequal = unequal_work(pair, records) if checked else []
    described = {
        "reference": pair.reference.name,
        "candidate": pair.candidate.name,
        "batch": pair.candidate.batch,
        "checked": checked,
        "unequal": unequal,
        "by_design": sorted(pair.by_design),
        "means": other_means(reference[0], candidate[0]) if checked else [],
        "losses": None,
        "measure": None,
        "ratios": [],
        "ratio": None,
        "verdict": None,
    }
    if checked:
        gap = loss_gap(reference[0], candidate[0])
        described["losses"] = asdict(gap) if gap else None
    if unequal and not settings.allow_unequal:
        return {**described, "verdict": "refused"}
    ratios, measure = epoch_ratios(reference, candidate), "epoch"
    if not ratios:
        ratios, measure = process_ratios(reference, candidate), "process"
    rounds = len({run["round"] for run in reference} & {run["round"] for run in candidate})
    return {
        **described,
        "measure": measure,
        "ratios": ratios,
        "ratio": _spread(ratios),
        "verdict": verdict(ratios, rounds) if ratios else None,
    }


def unequal_work(pair: Pair, records: Records) -> list[str]:
    """List how the work differs between candidate and reference, and between runs of each."""
    reference, candidate = (good(records.get(cell, ())) for cell in pair)
    lines = unequal_rounds(reference) + unequal_rounds(candidate)
    # Between backends the framework is what is compared.
    frameworks = {"framework"} if pair.reference.side != pair.candidate.side else set()
    by_round = {run["round"]: run for run in reference}
    for run in candidate:
        if run["round"] in by_round:
            lines += differences(by_round[run["round"]], run, pair.by_design | frameworks)
    return list(dict.fromkeys(lines))


def require_equal_work(cell: Cell, records: Records, settings: Settings) -> None:
    """Raise UnequalWorkError if a pair with this cell is unequal, unless --allow-unequal is set."""
    if settings.allow_unequal or cell.external:
        return
    pairs = [pair for pair in make_pairs(cells_of(settings)) if cell in pair]
    lines = [
        line
        for pair in pairs
        if not pair.candidate.external
        for line in unequal_work(pair, records)
    ]
    if lines:
        listed = "".join(f"\n  {line}" for line in dict.fromkeys(lines))
        raise UnequalWorkError(
            f"the work is not equal, so the times are not compared:{listed}\n"
            "make the two sides do the same, or mark every such figure by --allow-unequal"
        )
