"""Medians with their range, ratios pair by pair, and whether a ratio exceeds the noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

MIN_PAIRS, MIN_ROUNDS = 3, 2
SLOWER, FASTER = "slower", "faster"
NO_DIFFERENCE = "no difference beyond noise"
TOO_FEW = "too few pairs to tell"
Document = dict[str, Any]  # as JSON holds it
STAGE_NAMES = {"data_wait": "data wait", "to_device": "to device", "loss": "targets and loss",
    "ema": "EMA"}  # fmt: skip
NONE = "–"


def spread(values: Sequence[float]) -> Document | None:
    """Return median, min, max and count of the values; None for no values."""
    if not values:
        return None
    median = statistics.median(values)
    return {"median": median, "min": min(values), "max": max(values), "count": len(values)}


def counted_epochs(run: Document) -> list[Document]:
    """Return the epochs after the warm-up."""
    return [epoch for epoch in run["epochs"] if epoch["counted"]]


def epoch_ratios(
    reference: Sequence[Document], candidate: Sequence[Document], time: str = "seconds"
) -> list[float]:
    """Divide the candidate's time by the reference's: same round and epoch, same batches.

    Args:
        reference, candidate: runs of two cells.
        time: entry of an epoch: "seconds" or "processor_seconds".
    """
    left, right = (
        {(run["round"], x["epoch"]): x[time] for run in runs for x in counted_epochs(run)}
        for runs in (reference, candidate)
    )
    # Processor time is counted in ticks: an epoch that mostly waits may have none.
    return [right[key] / left[key] for key in left if key in right and left[key] > 0]


def verdict(ratios: Sequence[float], rounds: int) -> str:
    """Return the conclusion from the ratios of the pairs.

    A difference counts if 1 lies outside the range of the ratios, widened on each side by half its
    width (on a logarithmic scale). For normal noise that is two standard deviations of a single
    pair. Epochs of one process are not independent, so one round never counts.

    Args:
        ratios: candidate by reference, one per pair.
        rounds: number of rounds of these pairs.
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
