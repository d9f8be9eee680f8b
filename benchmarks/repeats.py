"""Which figures of earlier runs of benchmarks a last one repeats.

Before: `results.py` reads all. After: `report.py` prints the lines.

A ratio repeats if it lies within the spread of an earlier run, or between those of several. That is
the middle half of the ratios turn by turn, and the ratio itself. Where a script knows no turns, it
is what its fastest and slowest times allow. A row without a plain path repeats if its median lies
between those. Turns are of one process; several runs show how processes differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.results import Results
from benchmarks.side_by_side import Timing
from utils.comparison.words import NONE, number


class Figure(NamedTuple):
    """What a row says: a ratio, or its milliseconds if it has no plain path; and its spread."""

    value: float
    low: float
    high: float
    unit: str


def figure_of(plain: Timing | None, timing: Timing) -> Figure:
    """Return the figure of a row with its stated spread."""
    if plain is None or math.isnan(timing.ratio):
        return Figure(timing.median, timing.fastest, timing.slowest, " ms")
    if timing.ratio_from is not None and timing.ratio_to is not None:
        spread = (timing.ratio, timing.ratio_from, timing.ratio_to)
        return Figure(timing.ratio, min(spread), max(spread), "")
    low, high = timing.fastest / plain.slowest, timing.slowest / plain.fastest
    return Figure(timing.ratio, low, high, "")


def figures_of(results: Results) -> dict[str, Figure]:
    """Return the figure of each row but the references, by script, case and name."""
    return {
        f"{script.name}: {timing.case}, {timing.name}": figure_of(plain, timing)
        for script in results.scripts
        for plain, timing in script.compared()
    }


def figures_of_all(runs: Sequence[Results]) -> dict[str, Figure]:
    """Return each figure as its first run has it, with the spread of all its runs."""
    found: dict[str, Figure] = {}
    for name, figure in (item for run in runs for item in figures_of(run).items()):
        first = found.setdefault(name, figure)
        if first.unit == figure.unit:
            low, high = min(first.low, figure.low), max(first.high, figure.high)
            found[name] = first._replace(low=low, high=high)
    return found


def differences(first: Results, second: Results) -> Iterator[str]:
    """Yield what else than the time differs: machines, versions, devices, cases."""
    machines = [
        {x.name: f"{x.machine}, {x.device}" for x in run.scripts} for run in (first, second)
    ]
    for name in sorted(machines[0].keys() & machines[1].keys()):
        before, now = machines[0][name], machines[1][name]
        if before != now:
            yield f"{name}: measured on {before}, then on {now}"
    cases = [figures_of(run) for run in (first, second)]
    for have, lack, folder in ((0, 1, first.folder), (1, 0, second.folder)):
        for name in cases[have]:
            if name not in cases[lack]:
                yield f"{name}: only in {folder}"


def compare_runs(earlier: Sequence[Results], last: Results) -> list[str]:
    """Return a line for each figure that both have; the last line says how many repeat."""
    lines, wandering = [], []
    after = figures_of(last)
    both = {name: x for name, x in figures_of_all(earlier).items() if name in after}
    for name, figure in both.items():
        now = after[name]
        repeats = figure.unit == now.unit and figure.low <= now.value <= figure.high
        if not repeats:
            wandering.append(name)
        lines.append(
            f"{name}: {number(figure.value)}{figure.unit} "
            f"({number(figure.low)} to {number(figure.high)}), "
            f"then {number(now.value)}{now.unit}: {'repeats' if repeats else 'does not repeat'}"
        )
    named = "; ".join(wandering) or NONE
    others = dict.fromkeys(line for run in earlier for line in differences(run, last))
    count = f"{len(both) - len(wandering)} of {len(both)} cases repeat; not: {named}"
    return [*lines, *others, count]
