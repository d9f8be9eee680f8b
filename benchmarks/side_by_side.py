"""Time a reference and a fast path in turns in one run; used by every benchmark here."""

import argparse
import json
import logging
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from duet import backend
from duet.backend.checks import CPU
from duet.backend.select import FRAMEWORKS
from duet.utils.cli import flags as cli
from duet.utils.comparison.document import NONE, number
from duet.utils.comparison.load import LoadWatch
from duet.utils.errors import UserError
from duet.utils.files.atomic import atomic_text_file
from duet.utils.system.machine import ending_children, load_average, processor
from duet.utils.text import count

COLUMNS = ("case", "row", "median, ms", "fastest to slowest", "ratio", "of turns",
    "of the fastest", "images/s", "peak, GiB", "others")  # fmt: skip
NOTE = """\
Medians in milliseconds; their ratio to the first row of the case, the plain path of a fast one; the
middle half of the ratios turn by turn; the ratio of the fastest runs; images per second; peak
memory of the device; cores that other processes used meanwhile.
"""
Run = Callable[[], object]


class NotMeasuredError(UserError):
    """A row has no figure; the message gives the reason."""


@dataclass(frozen=True)
class Timing:
    """One candidate of one case; times in milliseconds."""

    case: str
    name: str
    median: float
    fastest: float
    slowest: float
    runs: int
    ratio: float  # median divided by the reference's; NaN without a reference
    others: float | None = None  # cores used by other processes meanwhile
    # Middle half of the ratios turn by turn: where a single run lies, even on a busy machine.
    ratio_from: float | None = None
    ratio_to: float | None = None
    ratio_fastest: float | None = None  # fastest run divided by the reference's fastest
    images: int | None = None  # computed by one run
    peak_bytes: int | None = None  # device memory, in one run

    @property
    def images_per_second(self) -> float | None:
        return None if self.images is None else 1000 * self.images / self.median

    @property
    def peak_gib(self) -> float | None:
        return None if self.peak_bytes is None else self.peak_bytes / 2**30


def new_parser(module: str, description: str, repeats: int) -> argparse.ArgumentParser:
    """Return a parser with the flags shared by all benchmarks."""
    parser = cli.new_parser(f"python -m benchmarks.{module}", description)
    add = parser.add_argument
    add("--repeats", type=cli.from_one, default=repeats, metavar="N", help="runs of each candidate")
    add("--json", type=Path, metavar="F", help="write the table as JSON too")
    add("--backend", choices=FRAMEWORKS)
    add("--device", default="", help="cpu, 0, cuda:0; default: the first GPU, else the CPU")
    return parser


def choose_device(flags: argparse.Namespace) -> str:
    """Use the backend and device of the flags, and print the machine."""
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
    backend.use(flags.backend)
    device = backend.device.resolve(flags.device)
    print(machine(device))
    return device


def machine(device: str) -> str:
    """Return framework, device and processor on one line."""
    return f"{backend.device.describe(device)}, {host()}"


def host() -> str:
    return f"{processor()}, {count(os.cpu_count() or 1, 'core')}"


def run_within(
    line: Sequence[str], environment: Mapping[str, str] | None, seconds: float
) -> int | None:
    """Run a command; return its exit code, or None if it was stopped after this many seconds.

    Its child processes end with it.
    """
    with ending_children():
        process = subprocess.Popen(line, env=environment)
        try:
            return process.wait(None if math.isinf(seconds) else seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None


def time_in_turns(
    case: str,
    candidates: Mapping[str, Run],
    device: str,
    repeats: int,
    warm_up: int = 3,
    images: int | None = None,
) -> list[Timing]:
    """Time each candidate `repeats` times in turns, so that a slower machine slows all alike.

    The first candidate is the reference that the ratios refer to. The caller checks that all do
    equal work.

    Args:
        images: how many one run computes.
    """
    spent: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        for _ in range(warm_up):
            run()
    load = LoadWatch()
    for _ in range(repeats):
        for name, run in candidates.items():
            spent[name].append(milliseconds(run, device))
    rows = rows_of(case, spent, next(iter(candidates)), load.others(), images)
    return [_with_turns(row, spent[row.name], spent[rows[0].name]) for row in rows]


def milliseconds(run: Run, device: str) -> float:
    """Return the milliseconds until a call and the work it queued on the device are done."""
    backend.device.synchronize(device)
    start = backend.device.mark(device)
    run()
    return 1000 * backend.device.seconds_between(start, backend.device.mark(device))


def _with_turns(row: Timing, times: Sequence[float], reference: Sequence[float]) -> Timing:
    """Add to a row the middle half of its ratios turn by turn, and the ratio of the fastest."""
    ratios = [time / beside for time, beside in zip(times, reference, strict=True)]
    several = ratios if len(ratios) > 1 else 2 * ratios
    low, _, high = statistics.quantiles(several, n=4, method="inclusive")
    return replace(row, ratio_from=low, ratio_to=high, ratio_fastest=min(times) / min(reference))


def rows_of(
    case: str,
    spent: Mapping[str, Sequence[float]],
    reference: str,
    others: float | None = None,
    images: int | None = None,
) -> list[Timing]:
    """Return a row per candidate from the milliseconds of its runs, in any order.

    Args:
        reference: candidate to which ratios refer; NaN if it was not measured.
    """
    medians = {name: statistics.median(times) for name, times in spent.items()}
    whole = medians.get(reference, math.nan)
    return [
        Timing(case, name, medians[name], min(times), max(times), len(times),
            medians[name] / whole, others, images=images)
        for name, times in spent.items()
    ]  # fmt: skip


def cells_of(x: Timing) -> tuple[str, ...]:
    """Return the cells of a row, as `COLUMNS` names them."""
    has_turns = x.ratio_from is not None and x.ratio_to is not None
    return (
        x.case, x.name, number(x.median), f"{number(x.fastest)} to {number(x.slowest)}",
        number(x.ratio), f"{number(x.ratio_from)} to {number(x.ratio_to)}" if has_turns else NONE,
        number(x.ratio_fastest), number(x.images_per_second), number(x.peak_gib),
        number(x.others),
    )  # fmt: skip


def finish(flags: argparse.Namespace, timings: Sequence[Timing], device: str) -> None:
    """Print the table and, if requested, write it as JSON with its machine and command."""
    rows = [COLUMNS, *map(cells_of, timings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    print(NOTE + f"load average {load_average()} at the end")
    keep(flags, timings, device)


def keep(flags: argparse.Namespace, timings: Sequence[Timing], device: str) -> None:
    """Write the results so far, if requested: a script may be stopped after any case."""
    if flags.json is not None:
        write_json(flags.json, machine(device), timings, device)


def write_json(
    path: Path, where: str, timings: Sequence[Timing], device: str = CPU, **more: object
) -> None:
    """Write the table with its machine, date and command.

    Args:
        more: further entries of the document, as read by `report.py`.
    """
    rows = [
        {**asdict(timing), "ratio": None if math.isnan(timing.ratio) else timing.ratio}
        for timing in timings
    ]
    document = {
        "machine": where,
        "device": device,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": sys.argv,
        "load_average": load_average(),
        "timings": rows,
        **more,
    }
    with atomic_text_file(path) as file:
        json.dump(document, file, indent=1)
