"""Compare another trainer with YOLOv5's command line with ours, in turns.

    python -m benchmarks.beside --other 'python OTHER' --data bccd.yaml \
        --img 320 --batch 16 --epochs 3 --cache ram -- --noplots

Both get the same flags, including those after --. The other runs as given, without a shell, in this
folder and environment. An epoch lasts from one new row of results.csv to the next, by the same
clock for both, so the first epoch, a warm-up, is left out. Without such a file, only the whole
process is timed. Unequal work, as far as both report it, ends the comparison with exit code 2; a
failed run with 1.
"""

import argparse
import json
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from duet.backend.select import FRAMEWORKS
from duet.backend.system import cores_of
from duet.utils.cli.flags import from_one, new_parser
from duet.utils.comparison.document import epoch_ratios, flatten, number, spread, verdict
from duet.utils.comparison.load import LoadWatch, children_seconds, describe_machine, disturbs
from duet.utils.comparison.report import run_lines
from duet.utils.comparison.runs import describe_run, run_process
from duet.utils.comparison.settings import Cell, Document, Turn, find_pythons
from duet.utils.errors import UserError
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.json_files import read_json
from duet.utils.files.regular import MAX_BYTES, open_regular, read_bytes
from duet.utils.files.yaml_files import parse_yaml
from duet.utils.processes.command import run_command
from duet.utils.processes.exit_status import EXIT_FAILED
from duet.utils.project import PROJECT, from_here
from duet.utils.text import count

OPTIONS = {  # by their names in opt.yaml: ours, and YOLOv5's
    "image_size": "image size",
    "imgsz": "image size",
    "batch_size": "batch size",
    "cache": "cache",
}
WORK = {  # by their names in work.json
    "parameters": "parameters",
    "precision": "precision",
    "train_images": "training images",
    "validation.images": "validation images",
    "batches_sha1": "SHA-1 of the batches",
}
EPOCHS, BATCHES = "epochs", "batches per epoch"
COMPARED = tuple(dict.fromkeys((EPOCHS, BATCHES, *OPTIONS.values(), *WORK.values())))
PARAMETERS = re.compile(r"\b(\d[\d,]*) parameters\b")
NOT_CACHED = re.compile(r"\bnot caching\b", re.IGNORECASE)
Runs = dict[str, list[Document]]  # by side, ours first


class ArrivingRows:
    """Record when each row of a growing CSV file was first seen, each time it is called."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.arrivals: list[tuple[float, float]] = []  # by the clock, and in processor time

    def __call__(self) -> None:
        if self._path.exists():
            with open_regular(self._path, MAX_BYTES) as file:  # it grows while it is read
                rows = file.read(MAX_BYTES).count(b"\n") - 1  # below the heading
            new = rows - len(self.arrivals)
            self.arrivals += [(time.monotonic(), children_seconds())] * new

    def epochs(self) -> list[Document]:
        """Return the times between rows, without rows first seen together, by epoch."""
        gaps = zip(self.arrivals, self.arrivals[1:], strict=False)
        return [
            {"epoch": number, "counted": True, "seconds": end[0] - start[0],
             "processor_seconds": end[1] - start[1]}
            for number, (start, end) in enumerate(gaps, start=1)
            if end > start
        ]  # fmt: skip


def commands(flags: argparse.Namespace) -> dict[str, list[str]]:
    """Return the command of each side, without the flags that both have."""
    python = find_pythons([flags.backend])[flags.backend]
    train = map(str, map(from_here, (Path(python), PROJECT / "train.py")))
    ours = [*train, "--backend", flags.backend, *flags.ours]
    return {flags.backend: ours, "other": flags.other}


def common_flags(flags: argparse.Namespace, folder: Path) -> list[str]:
    """Return the flags of both, as YOLOv5's train.py names them."""
    data = Path(flags.data)
    line = ["--data", str(data.resolve()) if data.is_file() else flags.data]
    line += ["--cfg", flags.cfg, "--weights", flags.weights, "--img", str(flags.img)]
    line += ["--batch-size", str(flags.batch), "--epochs", str(flags.epochs)]
    line += ["--workers", str(flags.workers), "--device", flags.device]
    line += ["--cache", flags.cache] if flags.cache else []
    place = ["--project", str(folder.parent), "--name", folder.name, "--exist-ok"]
    return [*line, *flags.extra, *place]


def run_once(
    turn: Turn, command: Sequence[str], flags: argparse.Namespace, folder: Path
) -> Document:
    """Run a trainer; return its times, its load and its reported work.

    Raises:
        UserError: it cannot be started.
    """
    place = folder / turn.name
    line, log = [*command, *common_flags(flags, place)], folder / f"{turn.name}.log"
    rows, load = ArrivingRows(place / "results.csv"), LoadWatch()
    try:
        outcome = run_process(line, log, 60 * flags.timeout, flags.device, rows)
    except (OSError, IndexError) as error:
        raise UserError(f"{shlex.join(line)} cannot be started: {error}") from error
    run = describe_run(turn, line, outcome, log)
    found = {"epochs": rows.epochs(), "load": {"others": load.others()}}
    return run | found | {"work": read_work(place, log, len(rows.arrivals))}


def read_work(folder: Path, log: Path, epochs: int) -> dict[str, Any]:
    """Return what a run reports about its work, by name.

    A trainer with YOLOv5's command line leaves opt.yaml, and prints the number of parameters; ours
    leaves work.json.

    Args:
        epochs: rows of its results.csv; 0 if it wrote none.
    """
    printed = log.read_text(encoding="utf-8", errors="replace")
    options, document = _read_yaml(folder / "opt.yaml"), _read_yaml(folder / "work.json")
    work = document.get("work")
    work = flatten(work) if isinstance(work, dict) else {}
    reported: dict[str, Any] = {EPOCHS: epochs} if epochs else {}
    if count_line := PARAMETERS.search(printed):
        reported["parameters"] = int(count_line[1].replace(",", ""))
    reported |= {name: options[key] for key, name in OPTIONS.items() if key in options}
    reported |= {name: work[key] for key, name in WORK.items() if key in work}
    if "cache" in reported:
        kind = "ram" if reported["cache"] is True else str(reported["cache"] or "none")
        had = work.get("cached.training", "none" if NOT_CACHED.search(printed) else "all")
        reported["cache"] = (
            kind if had == "all" or kind == "none" else f"{kind}, of the images {had}"
        )
    if epochs and "batches" in work:
        reported[BATCHES] = work["batches"] // epochs
    return reported


def _read_yaml(path: Path) -> Mapping[str, Any]:
    """Read a YAML or JSON mapping; {} if the file is missing or has another form."""
    try:
        is_json = path.suffix == ".json"
        document = read_json(path) if is_json else parse_yaml(read_bytes(path, MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


class Work(NamedTuple):
    """The work of two runs, compared by name."""

    equal: list[str]
    unequal: list[str]  # a line each
    not_reported: list[str]  # by at least one of them


def compare_work(ours: Mapping[str, Any], other: Mapping[str, Any]) -> Work:
    """Compare the reported work of two runs."""
    work = Work([], [], [])
    for name in COMPARED:
        if name not in ours or name not in other:
            work.not_reported.append(name)
        elif ours[name] == other[name]:
            work.equal.append(name)
        else:
            work.unequal.append(f"{name}: {ours[name]} in ours, {other[name]} in the other")
    return work


def measure(flags: argparse.Namespace, folder: Path) -> tuple[Runs, Work]:
    """Run both in turns; return their runs and the comparison of their work.

    Raises:
        UserError: their work is not equal, and --allow-unequal is not set.
        SystemExit: a run failed.
    """
    sides = commands(flags)
    runs: Runs = {side: [] for side in sides}
    work = Work([], [], [])
    for turn in range(1, flags.rounds + 1):
        # A B, then B A: a machine that gets slower or faster affects both alike.
        for side in list(sides)[:: 1 if turn % 2 else -1]:
            cell = Cell(side, "beside", flags.batch)
            run = run_once(Turn(cell, turn), sides[side], flags, folder)
            others, processor = run["load"]["others"], number(run["processor_seconds"])
            said = f"    processor {processor} s, others {number(others)}"
            mark = "  UNDER LOAD" if disturbs(others, len(cores_of())) else ""
            print("\n".join([*run_lines(run, False), said + mark]), flush=True)
            if run["failure"]:
                sys.exit(EXIT_FAILED)
            runs[side].append(run)
        ours, other = runs.values()
        work = compare_work(ours[-1]["work"], other[-1]["work"])
        if work.unequal and not flags.allow_unequal:
            listed = "".join(f"\n  {line}" for line in work.unequal)
            raise UserError(
                f"the work differs, so times are not compared:{listed}\n"
                "make both do the same work, or mark the results with --allow-unequal"
            )
    return runs, work


def run_ratios(other: Sequence[Document], ours: Sequence[Document], time: str) -> list[float]:
    """Divide our time for each whole run by the other's of the same round."""
    return [mine[time] / its[time] for its, mine in zip(other, ours, strict=True)]


def ratio_lines(runs: Runs) -> list[str]:
    """Return our time divided by the other's, by kind of time, a line each."""
    ours, other = runs.values()
    kinds = {
        "epochs": epoch_ratios(other, ours),
        "processor, epochs": epoch_ratios(other, ours, "processor_seconds"),
        "whole runs": run_ratios(other, ours, "process_seconds"),
        "processor, runs": run_ratios(other, ours, "processor_seconds"),
    }
    lines = ["our time divided by the other's:"]
    for name, ratios in kinds.items():
        if found := spread(ratios):
            low, high = number(found["min"]), number(found["max"])
            pairs = f"{low} to {high} in {count(found['count'], 'pair')}"
            said = verdict(ratios, len(ours))
            lines.append(f"{name:<18}{number(found['median']):>10}  {pairs}: {said}")
        else:
            lines.append(f"{name:<18}{'-':>10}  one of them wrote no rows with times")
    return lines


def parser() -> argparse.ArgumentParser:
    parser = new_parser(
        "python -m benchmarks.beside", "Compare another trainer with ours, in turns."
    )
    add = parser.add_argument
    add("--other", type=shlex.split, required=True, metavar="COMMAND",
        help="with its own flags; runs without a shell")  # fmt: skip
    add("--ours", type=shlex.split, default=[], metavar="FLAGS", help="flags for our train.py only")
    add("--backend", choices=[n for n, f in FRAMEWORKS.items() if f.trains], default="torch")
    add("--data", required=True, metavar="D", help="dataset YAML")
    add("--cfg", default="yolov5n.yaml", metavar="F", help="each uses its own file of this name")
    add("--weights", default="", metavar="F", help="read by both; '': train from scratch")
    add("--img", type=from_one, default=320, metavar="PX")
    add("--batch", type=from_one, default=16, metavar="N")
    add("--epochs", type=from_one, default=3, metavar="N", help="per run; the first is a warm-up")
    add("--rounds", type=from_one, default=2, metavar="N", help="runs per trainer")
    add("--cache", choices=("", "ram", "disk"), default="")
    add("--workers", type=int, default=1, metavar="N", help="loader processes")
    add("--device", default="cpu", help="cpu, 0")
    add("--timeout", type=float, default=60, metavar="MIN", help="time limit of a run")
    add("--allow-unequal", action="store_true", help="mark unequal work instead of refusing it")
    add("--json", type=Path, metavar="F", help="write all runs into a file")
    add("extra", nargs="*", metavar="FLAG", help="after --: flags for both")
    return parser


def main() -> None:
    flags = parser().parse_args()
    if not flags.timeout > 0:
        raise UserError(f"--timeout {flags.timeout}; a number above 0 is needed")
    if flags.json is not None and not flags.json.parent.is_dir():  # now, not after hours
        raise UserError(f"--json {flags.json}: make its folder {flags.json.parent} first")
    machine = describe_machine()
    cores = ",".join(map(str, sorted(cores_of())))
    settings = "".join(f", {name}={value}" for name, value in machine["variables"].items())
    print(f"{machine['processor']}, cores {cores}{settings}", flush=True)
    with TemporaryDirectory() as folder:
        runs, work = measure(flags, Path(folder))
    print("\n".join([*ratio_lines(runs), f"equal work: {', '.join(work.equal)}",
        *(f"UNEQUAL WORK: {line}" for line in work.unequal),
        f"not reported by both, so not compared: {', '.join(work.not_reported)}"]))  # fmt: skip
    print("others: cores used by other processes")
    if flags.json is not None:
        document = {"machine": machine, "command": sys.argv, "work": work._asdict(), "runs": runs}
        with atomic_text_file(flags.json) as file:
            json.dump(document, file, indent=1)


if __name__ == "__main__":
    run_command(main)
