"""All measurements as one JSON document, compare.json, and whether runs did equal work."""

import math
import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict
from typing import Any

from duet.utils.comparison.load import disturbs
from duet.utils.comparison.settings import Cell, Document, Pair, Settings, make_pairs
from duet.utils.errors import UserError

SCHEMA = 2
# Settings that are not part of the work.
IDENTITY = {"settings.backend", "settings.project", "settings.name", "settings.exist_ok"}
# Only the first batches: early steps double any difference, so later two runs differ by rounding
# alone. In the first batches the backends were 2e-5 apart on a CPU (YOLOv5n, built-in dataset).
# TF32 rounds a thousand times as coarsely.
JUDGED_BATCHES = 10
TOLERANCE = 1e-2
HALF_TOLERANCE = 1e-1  # bfloat16 keeps 8 bits, 4e-3 a rounding
MIN_PAIRS, MIN_ROUNDS = 3, 2
SLOWER, FASTER = "slower", "faster"
NO_DIFFERENCE = "no difference beyond noise"
TOO_FEW = "too few pairs to tell"
STAGE_NAMES = {"data_wait": "data wait", "to_device": "to device", "loss": "targets and loss",
    "ema": "EMA"}  # fmt: skip
NONE = "–"
Records = Mapping[Cell, Sequence[Document]]


class UnequalWorkError(UserError):
    """The runs to compare did not do the same work; the message lists the differences."""


def build_document(
    settings: Settings, records: Records, machine: Mapping[str, Any], status: str, created: str
) -> Document:
    """Return the comparison so far.

    Args:
        records: runs by cell, in order of their rounds.
        machine: from `load.describe_machine`.
        status: "running", "complete", "interrupted" or "refused".
    """
    pairs = [describe_pair(pair, records, settings) for pair in make_pairs(settings.cells)]
    return {
        "schema": SCHEMA,
        "created": created,
        "status": status,
        "machine": dict(machine),
        "settings": {**asdict(settings), "nproc": settings.processes},
        "cells": [
            describe_cell(cell, records.get(cell, ()), machine["cores"]) for cell in settings.cells
        ],
        "pairs": [pair for pair in pairs if pair is not None],
    }


def good(runs: Sequence[Document]) -> list[Document]:
    return [run for run in runs if run["failure"] is None]


def describe_cell(cell: Cell, runs: Sequence[Document], cores: int) -> Document:
    done = good(runs)
    epochs = [epoch for run in done for epoch in counted_epochs(run)]
    last = epochs[-1] if epochs else {}
    device = [run["peak_device_mib"] for run in done if run["peak_device_mib"] is not None]
    loads = [(run["round"], run.get("load", {}).get("others")) for run in done]
    return {
        "name": cell.name,
        "side": cell.side,
        "variant": cell.variant,
        "batch": cell.batch,
        "processes": done[0]["work"].get("processes") if done else None,
        "framework": done[0]["framework"] if done else None,
        "under_load": [{"round": number, "others": others} for number, others in loads
            if disturbs(others, cores)],
        "failures": [run["failure"] for run in runs if run["failure"]],
        "seconds_per_epoch": spread([epoch["seconds"] for epoch in epochs]),
        "seconds_per_process": spread([run["process_seconds"] for run in done]),
        "images_per_second": _images_per_second(done, epochs),
        "stages": _stages(epochs),
        "peak_host_mib": max((run["peak_host_mib"] for run in done), default=None),
        "peak_device_mib": max(device, default=None),
        "last_epoch": {name: last[name] for name in ("train", "val", "metrics")} if last else None,
        "runs": list(runs),
    }  # fmt: skip


def _images_per_second(runs: Sequence[Document], epochs: Sequence[Document]) -> float | None:
    if not epochs:
        return None
    images = int(runs[0]["work"]["train_images"])
    return statistics.median(
        images / (epoch["seconds"] - epoch["stages"].get("validation", 0.0)) for epoch in epochs
    )


def _stages(epochs: Sequence[Document]) -> dict[str, float]:
    """Return median seconds of each stage, and of the rest: plots, weights, bookkeeping."""
    if not epochs:
        return {}
    names = epochs[0]["stages"]
    stages = {name: statistics.median(epoch["stages"][name] for epoch in epochs) for name in names}
    rest = [epoch["seconds"] - sum(epoch["stages"].values()) for epoch in epochs]
    return {**stages, "other": max(statistics.median(rest), 0.0)}


def describe_pair(pair: Pair, records: Records, settings: Settings) -> Document | None:
    """Compare a candidate's times with its reference's; None before both ran."""
    reference, candidate = (good(records.get(cell, ())) for cell in pair)
    if not reference or not candidate:
        return None
    unequal = unequal_work(pair, records)
    refused = bool(unequal) and not settings.allow_unequal
    ratios = [] if refused else epoch_ratios(reference, candidate)
    rounds = len({run["round"] for run in reference} & {run["round"] for run in candidate})
    return {
        "reference": pair.reference.name,
        "candidate": pair.candidate.name,
        "batch": pair.candidate.batch,
        "unequal": unequal,
        "by_design": sorted(pair.by_design),
        "means": differences(reference[0], candidate[0], part="means"),
        "losses": loss_gap(reference[0], candidate[0]),
        "ratios": ratios,
        "ratio": spread(ratios),
        "verdict": "refused" if refused else verdict(ratios, rounds),
    }


def unequal_work(pair: Pair, records: Records) -> list[str]:
    """List how the work differs between candidate and reference, and between runs of each."""
    reference, candidate = (good(records.get(cell, ())) for cell in pair)
    lines = [
        line
        for runs in (reference, candidate)
        for later in runs[1:]
        for part in ("work", "means")
        for line in differences(runs[0], later, part=part)
    ]
    if reference and candidate:  # the first of each; later ones equal them, or are listed
        # Between backends the framework itself is compared.
        frameworks = {"framework"} if pair.reference.side != pair.candidate.side else set()
        lines += differences(reference[0], candidate[0], pair.by_design | frameworks)
    return lines


def require_equal_work(cell: Cell, records: Records, settings: Settings) -> None:
    """Raise UnequalWorkError if a pair with this cell is unequal, unless --allow-unequal is set."""
    pairs = [pair for pair in make_pairs(settings.cells) if cell in pair]
    lines = [line for pair in pairs for line in unequal_work(pair, records)]
    if lines and not settings.allow_unequal:
        listed = "".join(f"\n  {line}" for line in dict.fromkeys(lines))
        raise UnequalWorkError(
            f"the work differs, so times are not compared:{listed}\n"
            "make both sides do the same work, or mark these results with --allow-unequal"
        )


def flatten(work: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in work.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def differences(
    reference: Document, candidate: Document, allowed: Set[str] = frozenset(), part: str = "work"
) -> list[str]:
    """List how the candidate's record differs from the reference's, one line per name.

    Args:
        allowed: names that may differ.
        part: "work", including the framework, or "means", the implementations used.
    """
    left, right = (flatten(run.get(part, {})) for run in (reference, candidate))
    if part == "work":
        left["framework"], right["framework"] = reference["framework"], candidate["framework"]
    here, there = (f"{run['cell']} round {run['round']}" for run in (reference, candidate))
    return [
        f"{name}: {left.get(name, 'absent')} in {here}, {right.get(name, 'absent')} in {there}"
        for name in {**left, **right}
        if (name in left, left.get(name)) != (name in right, right.get(name))
        and name not in allowed | IDENTITY
    ]


def loss_gap(reference: Document, candidate: Document) -> Document | None:
    """Compare the losses of the first batches; None if one run has no losses.

    Returns:
        The number of `batches`, the `worst` relative difference of the summed losses (None: one
        is not finite), its `worst_batch` from 1, the `tolerance`, and whether they `diverged`.
    """
    pairs = list(zip(reference["losses"], candidate["losses"], strict=False))[:JUDGED_BATCHES]
    if not pairs:
        return None
    gaps = [_gap(*pair) for pair in pairs]
    worst = max(gaps)  # none is NaN
    precisions = {run["work"].get("precision") for run in (reference, candidate)}
    tolerance = TOLERANCE if precisions <= {"float32", "float64"} else HALF_TOLERANCE
    return {
        "batches": len(gaps),
        "worst": worst if math.isfinite(worst) else None,
        "worst_batch": gaps.index(worst) + 1,
        "tolerance": tolerance,
        "diverged": worst > tolerance,
    }


def _gap(reference: Sequence[float | None], candidate: Sequence[float | None]) -> float:
    """Return the relative difference of two summed losses; infinite if a term is not finite."""
    left, right = (sum(math.inf if x is None else x for x in one) for one in (reference, candidate))
    if not (math.isfinite(left) and math.isfinite(right)):
        return math.inf
    return abs(right - left) / max(abs(left), 1e-12)


def spread(values: Sequence[float]) -> Document | None:
    """Return median, min, max and count of the values; None for no values."""
    if not values:
        return None
    median = statistics.median(values)
    return {"median": median, "min": min(values), "max": max(values), "count": len(values)}


def counted_epochs(run: Document) -> list[Document]:
    return [epoch for epoch in run["epochs"] if epoch["counted"]]


def epoch_ratios(
    reference: Sequence[Document], candidate: Sequence[Document], time: str = "seconds"
) -> list[float]:
    """Divide the candidate's time by the reference's: same round and epoch, same batches.

    time: entry of an epoch, "seconds" or "processor_seconds".
    """
    left, right = (
        {(run["round"], x["epoch"]): x[time] for run in runs for x in counted_epochs(run)}
        for runs in (reference, candidate)
    )
    # Processor time is counted in ticks: an epoch that mostly waits may have none.
    return [right[key] / left[key] for key in left if key in right and left[key] > 0]


def verdict(ratios: Sequence[float], rounds: int) -> str:
    """Return the conclusion from the pairs' ratios, candidate by reference.

    A difference counts if 1 lies outside the range of the ratios, widened on each side by half its
    width (on a logarithmic scale). For normal noise that is two standard deviations of a single
    pair. Epochs of one process are not independent, so one round never counts.
    """
    if len(ratios) < MIN_PAIRS or rounds < MIN_ROUNDS:
        return TOO_FEW
    low, high = math.log(min(ratios)), math.log(max(ratios))
    margin = (high - low) / 2
    if low - margin > 0:
        return SLOWER
    return FASTER if high + margin < 0 else NO_DIFFERENCE


def number(value: float | None, digits: int = 3) -> str:
    """Return about three significant digits, without an exponent."""
    if value is None or value != value:
        return NONE
    whole = int(abs(value))
    decimals = digits - len(str(whole)) if whole else digits
    return f"{value:.{max(decimals, 0)}f}"


def stage_name(name: str) -> str:
    return STAGE_NAMES.get(name, name.replace("_", " "))
