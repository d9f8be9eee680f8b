"""Medians with their range, ratios pair by pair, and whether a ratio is beyond noise.

Before: `measured.py`. After: `document.py`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from utils.comparison.measured import Document

MIN_PAIRS = 3
MIN_ROUNDS = 2
SLOWER, FASTER = "slower", "faster"
NO_DIFFERENCE = "no difference beyond noise"
TOO_FEW = "too few pairs to tell"


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of some figures."""

    median: float
    min: float
    max: float
    count: int


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of the values; None for no values."""
    if not values:
        return None
    return Spread(statistics.median(values), min(values), max(values), len(values))


def counted_epochs(run: Document) -> list[Document]:
    """Return the epochs after the warm-up."""
    return [epoch for epoch in run["epochs"] if epoch["counted"]]


def epoch_ratios(
    reference: Sequence[Document], candidate: Sequence[Document], time: str = "seconds"
) -> list[float]:
    """Divide the candidate's time by the reference's: same round and epoch, same batches.

    Args:
        reference, candidate: runs of two cells.
        time: which one, by its name in an epoch: "seconds", "processor_seconds".
    """
    left, right = _epoch_times(reference, time), _epoch_times(candidate, time)
    # Processor time is counted in ticks: an epoch that mostly waits may have taken none.
    return [right[key] / left[key] for key in left if key in right and left[key] > 0]


def _epoch_times(runs: Sequence[Document], time: str) -> dict[tuple[int, int], float]:
    return {
        (run["round"], epoch["epoch"]): epoch[time] for run in runs for epoch in counted_epochs(run)
    }


def process_ratios(
    reference: Sequence[Document], candidate: Sequence[Document], time: str = "process_seconds"
) -> list[float]:
    """Divide the candidate's time by the reference's, of the whole run of the same round.

    Args:
        time: which one, by its name in a run: "process_seconds", "processor_seconds".
    """
    left = {run["round"]: run[time] for run in reference}
    right = {run["round"]: run[time] for run in candidate}
    return [right[number] / left[number] for number in left if number in right]


def verdict(ratios: Sequence[float], rounds: int) -> str:
    """Return what the ratios of the pairs say.

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
