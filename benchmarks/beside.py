"""Another trainer with YOLOv5's command line compared with ours: in turns, on the same cores.

    python -m benchmarks.beside --other 'python OTHER' --data bccd.yaml \
        --img 320 --batch 16 --epochs 3 --cpus 0,1 --cache ram -- --noplots

Both get the same flags; those after -- too. The other runs as given, without a shell, in this
folder and environment. An epoch is the time between two rows that appear in a run's results.csv:
one clock for both. So the first epoch, which warms up, is left out. For a trainer that writes no
such file only the time of its whole process is known. Work that is not equal, as far as both say
what they did, ends the comparison with exit code 2; a run that fails, with 1.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from backend.select import FRAMEWORKS
from backend.words import count
from benchmarks.beside_work import Work, compare_work, read_work
from utils.cli.flags import from_one, new_parser
from utils.comparison.load import LoadWatch, disturbs
from utils.comparison.machine import describe_machine
from utils.comparison.measured import ArrivingRows, Document, describe_run
from utils.comparison.plan import EXTERNAL, PLAIN, Cell, Turn
from utils.comparison.runner import run_process
from utils.comparison.settings import find_pythons, split_command
from utils.comparison.statistics import (
    counted_epochs,
    epoch_ratios,
    process_ratios,
    spread,
    verdict,
)
from utils.comparison.words import number, stage_name
from utils.errors import UserError
from utils.files.atomic import atomic_text_file
from utils.files.project import PROJECT, from_here
from utils.processes.command import run_command
from utils.processes.exit_status import EXIT_FAILED
from utils.report.results import read_results

WARM_UP_EPOCHS = 1
SECONDS = "seconds/"  # the columns of results.csv with the stages of an epoch
Runs = dict[str, list[Document]]  # by cell, ours first


def pin(cores: str) -> None:
    """Bind this process, and so all that it starts, to cores as "0,1"; "" leaves them.

    Raises:
        UserError: this process may not use one of them.
    """
    if not cores:
        return
    usable = os.sched_getaffinity(0)
    words = cores.split(",")
    if not all(word.isdecimal() and int(word) in usable for word in words):
        accepted = ",".join(map(str, sorted(usable)))
        raise UserError(f"--cpus {cores}: numbers out of {accepted} are accepted, as --cpus 0,1")
    os.sched_setaffinity(0, map(int, words))


def commands(flags: argparse.Namespace) -> dict[Cell, tuple[str, ...]]:
    """Return the command of each side, without the flags that both have."""
    python = find_pythons([flags.backend], [])[flags.backend]
    train = map(str, map(from_here, (Path(python), PROJECT / "train.py")))
    own = split_command("--ours", flags.ours) if flags.ours else ()
    ours = (*train, "--backend", flags.backend, *own)
    return {
        Cell(flags.backend, PLAIN, flags.batch): ours,
        Cell("other", EXTERNAL, flags.batch, external=True): split_command("--other", flags.other),
    }


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
    """Run a trainer; return its times, its load and what it says of its work.

    Raises:
        UserError: it cannot be started.
    """
    place = folder / turn.name
    line, log = [*command, *common_flags(flags, place)], folder / f"{turn.name}.log"
    rows, load = ArrivingRows(place / "results.csv"), LoadWatch()
    try:
        outcome = run_process(line, log, 60 * flags.timeout, flags.device, (rows,))
    except OSError as error:
        raise UserError(f"--other {flags.other}: it cannot be started: {error}") from error
    run = describe_run(turn, line, outcome, log, rows.epochs(WARM_UP_EPOCHS))
    run["load"] = load.document()
    run["stages"] = read_stages(place / "results.csv")
    run["work"] = read_work(place, log, len(rows.arrivals))
    return run


def read_stages(results: Path) -> dict[str, float]:
    """Return the median seconds of each stage, without the first epoch; {} if it tells none."""
    try:
        names, rows = read_results(results)
    except UserError:
        return {}
    stages = [name for name in names if name.startswith(SECONDS) and name != f"{SECONDS}epoch"]
    counted = rows[WARM_UP_EPOCHS:]
    return {
        name.removeprefix(SECONDS): statistics.median(row[name] for row in counted)
        for name in stages
        if counted
    }


def measure(flags: argparse.Namespace, folder: Path) -> tuple[Runs, Work]:
    """Run both in turns; return their runs and the comparison of their work.

    Raises:
        UserError: their work is not equal, and --allow-unequal is not set.
        SystemExit: a run failed.
    """
    sides = commands(flags)
    runs: Runs = {cell.side: [] for cell in sides}
    work = Work([], [], [])
    print(f"{'run':<16}{'s/epoch':>10}{'run s':>10}{'processor s':>13}{'host MiB':>10}  load")
    for turn_number in range(1, flags.rounds + 1):
        # A B, then B A: a machine that gets slower or faster affects both alike.
        for cell in list(sides)[:: 1 if turn_number % 2 else -1]:
            run = run_once(Turn(cell, turn_number), sides[cell], flags, folder)
            print(line_of(cell, run), flush=True)
            if run["failure"]:
                print("\n".join(run["log_tail"]))
                sys.exit(EXIT_FAILED)
            runs[cell.side].append(run)
        ours, other = runs.values()
        work = compare_work(ours[-1]["work"], other[-1]["work"])
        if work.unequal and not flags.allow_unequal:
            listed = "".join(f"\n  {line}" for line in work.unequal)
            raise UserError(
                f"the work is not equal, so the times are not compared:{listed}\n"
                "make the two do the same, or mark the figures by --allow-unequal"
            )
    return runs, work


def line_of(cell: Cell, run: Document) -> str:
    """Return the line of a run."""
    name = f"{cell.side} {run['round']}"
    if run["failure"]:
        return f"{name:<16}{run['failure']}"
    seconds = spread([epoch["seconds"] for epoch in counted_epochs(run)])
    figures = (run["process_seconds"], run["processor_seconds"])
    whole, processor = map(number, figures)
    return (
        f"{name:<16}{number(seconds.median if seconds else None):>10}{whole:>10}{processor:>13}"
        f"{number(run['peak_host_mib'], 1):>10}  {load_words(run)}"
    )


def load_words(run: Document) -> str:
    """Return the load average around a run, what others took of its cores, and its mark."""
    load = run["load"]
    average = f"{number(load['before'])} to {number(load['after'])}"
    return f"{average}, others {number(load['others'])}{'  UNDER LOAD' if is_busy(run) else ''}"


def is_busy(run: Document) -> bool:
    """Return whether others took so much of the cores that the run's times are doubtful."""
    return disturbs(run["load"]["others"], len(os.sched_getaffinity(0)))


def ratio_lines(runs: Runs) -> list[str]:
    """Return our time divided by the other's, by kind of time, a line each."""
    ours, other = runs.values()
    kinds = {
        "epochs": epoch_ratios(other, ours),
        "processor, epochs": epoch_ratios(other, ours, "processor_seconds"),
        "whole runs": process_ratios(other, ours),
        "processor, runs": process_ratios(other, ours, "processor_seconds"),
    }
    lines = []
    for name, ratios in kinds.items():
        if found := spread(ratios):
            low, high = number(found.min), number(found.max)
            pairs = f"{low} to {high} in {count(found.count, 'pair')}"
            said = verdict(ratios, len(ours))
            lines.append(f"{name:<18}{number(found.median):>10}  {pairs}: {said}")
        else:
            lines.append(f"{name:<18}{'-':>10}  one of the two wrote no rows to be timed by")
    if busy := sum(map(is_busy, [*ours, *other])):
        of = f"{busy} of {count(len(ours + other), 'run')}"
        lines.append(f"TAKEN UNDER LOAD, {of}: of these ratios those of processor time are surest")
    return lines


def stage_lines(runs: Runs) -> list[str]:
    """Return the stages of an epoch, a column for each side that tells them."""
    told = {side: stages for side, (run, *_) in runs.items() if (stages := run["stages"])}
    names = list(dict.fromkeys(name for stages in told.values() for name in stages))
    heading = [f"{'seconds, round 1':<18}" + "".join(f"{side:>10}" for side in told)]
    rows = [
        f"{stage_name(name):<18}" + "".join(f"{number(s.get(name)):>10}" for s in told.values())
        for name in names
    ]
    return ["", *heading, *rows] if rows else []


def work_lines(work: Work) -> list[str]:
    lines = [
        f"equal work: {', '.join(work.equal)}" if work.equal else "",
        *(f"UNEQUAL WORK: {line}" for line in work.unequal),
        f"not said by both, so not compared: {', '.join(work.not_said)}" if work.not_said else "",
    ]
    return [line for line in lines if line]


def write_json(path: Path, runs: Runs, work: Work) -> None:
    document = {
        "machine": describe_machine(),
        "command": sys.argv,
        "work": work._asdict(),
        "runs": runs,
    }
    with atomic_text_file(path) as file:
        json.dump(document, file, indent=1)


def parser() -> argparse.ArgumentParser:
    parser = new_parser(
        "python -m benchmarks.beside", "Compare another trainer with ours, in turns."
    )
    add = parser.add_argument
    add("--other", required=True, metavar="COMMAND", help="with flags only for it; no shell")
    add("--ours", default="", metavar="FLAGS", help="only for our train.py, one text")
    add("--backend", choices=[n for n, f in FRAMEWORKS.items() if f.trains], default="torch")
    add("--data", required=True, metavar="D", help="dataset YAML")
    add("--cfg", default="yolov5n.yaml", metavar="F", help="each finds its own of this name")
    add("--weights", default="", metavar="F", help="that both read; '' trains from scratch")
    add("--img", type=from_one, default=320, metavar="PX")
    add("--batch", type=from_one, default=16, metavar="N")
    add("--epochs", type=from_one, default=3, metavar="N", help="of each run; the first warms up")
    add("--rounds", type=from_one, default=2, metavar="N", help="runs of each")
    add("--cache", choices=("", "ram", "disk"), default="")
    add("--workers", type=int, default=1, metavar="N", help="loader processes")
    add("--device", default="cpu", help="cpu, 0")
    add("--cpus", default="", metavar="N,N", help="cores of both; '': all that are usable")
    add("--timeout", type=float, default=60, metavar="MIN", help="after which a run is ended")
    add("--allow-unequal", action="store_true", help="mark unequal work, not refuse it")
    add("--json", type=Path, metavar="F", help="write all runs into a file")
    add("extra", nargs="*", metavar="FLAG", help="after --: for both")
    return parser


def main() -> None:
    flags = parser().parse_args()
    if not flags.timeout > 0:
        raise UserError(f"--timeout {flags.timeout}; a number above 0 is needed")
    if flags.json is not None and not flags.json.parent.is_dir():  # known only hours later, else
        raise UserError(f"--json {flags.json}: make its folder {flags.json.parent} first")
    pin(flags.cpus)
    machine = describe_machine()
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    settings = "".join(f", {name}={value}" for name, value in machine["variables"].items())
    print(f"{machine['processor']}, cores {cores}{settings}")
    with TemporaryDirectory() as folder:
        runs, work = measure(flags, Path(folder))
    print("\n".join([*stage_lines(runs), "", "our time divided by the other's:"]))
    print("\n".join([*ratio_lines(runs), "", *work_lines(work)]))
    print("load: the load average before and after; others: cores that other processes took")
    if flags.json is not None:
        write_json(flags.json, runs, work)


if __name__ == "__main__":
    run_command(main)
