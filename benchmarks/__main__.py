"""Run all benchmarks of this folder as separate processes; write JSON and a report to runs/bench.

    python -m benchmarks --device cpu
    python -m benchmarks --device 0 --minutes 10

With these flags all jobs take about ten minutes on two cores. Jobs that fail, or that --minutes
cuts off or leaves out, are listed at the end and in report.md; the others still run. The exit code
is 1 if a job failed.
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before imports that may be slow or missing

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.report import RUN, read_scripts, write_report
from benchmarks.side_by_side import host, run_within
from duet import backend
from duet.backend.checks import CPU
from duet.backend.select import ENVIRONMENT_VARIABLE, FRAMEWORKS
from duet.utils.cli.flags import new_parser
from duet.utils.comparison.load import gpus
from duet.utils.errors import UserError
from duet.utils.files.atomic import atomic_text_file
from duet.utils.processes.command import run_command
from duet.utils.system.machine import load_average

# Jobs with their flags, the longest last. The goal of `detect` is for 640 px.
JOBS: Mapping[str, Sequence[str]] = {
    "ciou": (),
    "detect": ("--images", "12", "--repeats", "3"),
    "heads": (),
    "loader": (),
    "updates": (),
    "train_step": (),
    "val": (),
}
ONE_CORE = {"loader"}  # its figures are for one core; it refuses other devices


def line_of(name: str, flags: Sequence[str], device: str, path: Path) -> list[str]:
    """Return the command of a job that writes its JSON to a path."""
    line = [sys.executable, "-m", f"benchmarks.{name}", *flags, "--backend", backend.use()]
    return [*line, "--device", CPU if name in ONE_CORE else device, "--json", str(path)]


def run(name: str, line: Sequence[str], seconds: float) -> tuple[str, bool]:
    """Run a job within the remaining time; return a description of its end, and if it failed."""
    print(f"\n$ {' '.join(line[1:])}", flush=True)
    environment = {**os.environ, ENVIRONMENT_VARIABLE: backend.use()}
    environment.update({"OMP_NUM_THREADS": "1"} if name in ONE_CORE else {})
    code = run_within(line, environment, seconds)
    if code is None:
        return "ended by --minutes", False
    return ("done", False) if code == 0 else (f"failed with exit code {code}", True)


def run_all(jobs: Mapping[str, Sequence[str]], flags: argparse.Namespace, where: str) -> int:
    """Run all jobs; write run.json and the report after each. Return how many failed."""
    folder, begin, failed = flags.output, time.monotonic(), 0
    limit = math.inf if flags.minutes is None else 60 * flags.minutes
    for name in jobs:  # left by an earlier run
        (folder / f"{name}.json").unlink(missing_ok=True)
    read_scripts(folder)  # report a damaged file now, not after the first job
    ended = {name: {"name": name, "state": "not reached", "seconds": None} for name in jobs}
    for name, line in jobs.items():
        start = time.monotonic()
        left = limit - (start - begin)
        if left > 0:
            state, has_failed = run(name, line, left)
            failed += has_failed
            ended[name] |= {"state": state, "seconds": round(time.monotonic() - start, 1)}
        document = {
            "host": where,
            "minutes": flags.minutes,
            "load_average": load_average(),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "jobs": list(ended.values()),
        }
        with atomic_text_file(folder / RUN) as file:
            json.dump(document, file, indent=1)
        report = write_report(folder)
    print(f"\nreport in {report}")
    for row in ended.values():
        if row["state"] != "done":
            print(f"{row['name']}: {row['state']}")
    return failed


def main() -> None:
    parser = new_parser("python -m benchmarks", "All benchmarks.")
    add = parser.add_argument
    add("--backend", choices=FRAMEWORKS)
    add("--device", default="cpu", help="cpu, 0, cuda:0")
    add("--output", type=Path, default=Path("runs/bench"), metavar="P", help="folder of the JSON")
    add("--only", nargs="+", choices=JOBS, metavar="NAME", help="default: all")
    add("--minutes", type=float, metavar="N", help="limit; default: none")
    flags = parser.parse_args()
    if flags.minutes is not None and not flags.minutes > 0:
        raise UserError(f"--minutes {flags.minutes}; a number above 0 is needed")
    backend.use(flags.backend)
    device = backend.device.resolve(flags.device)
    flags.output.mkdir(parents=True, exist_ok=True)
    jobs = {
        name: line_of(name, more, device, flags.output / f"{name}.json")
        for name, more in JOBS.items()
        if flags.only is None or name in flags.only
    }
    where = ", ".join([host(), *(gpus() if device != CPU else [])])
    sys.exit(1 if run_all(jobs, flags, where) else 0)


if __name__ == "__main__":
    run_command(main)
