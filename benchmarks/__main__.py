"""Run all benchmarks of this folder, each as a process of its own; JSON and a report in runs/bench.

    python -m benchmarks --device cpu
    python -m benchmarks --device 0 --minutes 10

Sizes are those of SMALL, so that all end within about ten minutes on two cores. With a GPU the jobs
come in the order of what they tell of it, and those of CPU_ALONE run on the CPU all the same. A job
that fails, or that --minutes end or do not reach, is named at the end and in report.md; the others
run all the same. The exit code is 1 if a job failed.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import backend
from backend.checks import CPU
from backend.select import ENVIRONMENT_VARIABLE, FRAMEWORKS
from benchmarks.report import write_report
from benchmarks.results import COMPILED, RUN, TESTS, TESTS_NAME, read_scripts
from benchmarks.side_by_side import host
from benchmarks.time_limit import TimeLimit, run_within
from utils.cli.flags import new_parser
from utils.comparison.load import load_average
from utils.comparison.machine import gpus
from utils.errors import UserError
from utils.files.atomic import atomic_text_file
from utils.files.project import PROJECT
from utils.processes.command import run_command

FOLDER = Path(__file__).parent
# `scaling` writes tables of the documentation; its own parts are beside it.
SCALING = {
    "scaling", "scaling_measure", "scaling_model", "scaling_rank", "scaling_tables", "scaling_words"
}  # fmt: skip
# What joins and reports the results.
REPORT = {"goals", "repeats", "report", "results", "side_by_side", "time_limit"}
# `audit`, `ring` and `shared_lines` time nothing; `audit`, `formats`, `serve` and `val_host` need
# weights and data, `beside` another trainer.
NO_BENCHMARK = {
    "__init__", "__main__", "audit", "beside", "beside_work", "formats", "paste_and_warp",
    "ring", "serve", "serve_client", "shared_lines", "split", "val_host", *REPORT,
    *SCALING,
}  # fmt: skip
# Flags that make a script end sooner than its defaults. The goal of `detect` is for 640 px.
SMALL: dict[str, Sequence[str]] = {
    "detect": ("--images", "12", "--repeats", "3"),
    "limits": ("--repeats", "3"),
    "metric": ("--images", "500", "--repeats", "3"),
    "epoch": ("--epochs", "2", "--img", "160"),
    "scan": ("--images", "2000", "--samples", "100000"),
    "step_profile": ("--img", "160", "--batch", "4"),
    "tiles": ("--grid", "3", "--images", "9", "--repeats", "1"),
    "waiting": ("--busy", "0", "--rounds", "1"),
}
# In place of those of SMALL. Compiling takes a minute each time: `step_table` does it last.
SMALL_ON_GPU: dict[str, Sequence[str]] = {
    "epoch": ("--epochs", "2", "--img", "320", "--batch", "64"),
    "limits": ("--img", "640"),
    "step_profile": (),
    "step_table": ("--execution", "eager"),
    "step_table_compiled": ("--execution", "compiled"),
    "train_step": ("--only", "channels-last", "padded loss", "bf16", "fp16"),
}
NUMPY_ALONE = {"metric", "scan"}  # take no --backend and --device
CPU_ALONE = {"loader", "nms", "threads", "waiting"}  # refuse another device
GPU_ALONE = {"step_table"}  # hours on a CPU
ONE_CORE = {"loader", "metric", "nms"}  # their figures are stated for one core
LAST = ("val", "epoch", "waiting")  # they take longest
# On a GPU, in the order of what they tell of it; the others follow.
ON_GPU = (
    "step_table", "step_profile", "limits", "ciou", "ema", "optimizer", "train_step", "val",
    "detect", "norm_silu", "upsample", "folding", "tests", "step_table_compiled",
)  # fmt: skip


# On a GPU beside the scripts: the tests, and compiled steps apart from the eager ones.
FURTHER = (TESTS_NAME, f"step_table{COMPILED}")


class Job(NamedTuple):
    """One process: a script, under another name if it runs twice, or the tests."""

    name: str
    line: list[str]
    one_core: bool = False
    output: Path | None = None  # takes what it prints


def names() -> list[str]:
    """Return the names of the scripts of this folder, the slow ones last."""
    found = {path.stem for path in FOLDER.glob("*.py")} - NO_BENCHMARK
    return sorted(found, key=lambda name: (name in LAST, name))


def jobs(flags: argparse.Namespace, device: str) -> list[Job]:
    """Return what runs, in its order."""
    if device == CPU:
        asked = flags.only or [name for name in names() if name not in GPU_ALONE]
        return [job(name, flags, device) for name in asked]
    order = [*ON_GPU, *names()]
    wanted = sorted(flags.only or [*names(), *FURTHER], key=order.index)
    return [job(name, flags, device) for name in wanted]


def job(name: str, flags: argparse.Namespace, device: str) -> Job:
    """Return the process of one name, with its flags."""
    if name == TESTS_NAME:
        return Job(name, tests_line(), output=flags.output / TESTS)
    script = name.removesuffix(COMPILED)
    small = (SMALL if device == CPU else {**SMALL, **SMALL_ON_GPU}).get(name, ())
    line = [sys.executable, "-m", f"benchmarks.{script}", *small]
    if script not in NUMPY_ALONE:
        own = CPU if script in CPU_ALONE else device
        line += ["--backend", backend.use(), "--device", own]
    return Job(name, [*line, "--json", str(flags.output / f"{name}.json")], name in ONE_CORE)


def tests_line() -> list[str]:
    """Return the command of the tests that use a GPU where there is one, and end in minutes."""
    named = sorted((PROJECT / "tests").glob("**/test_*gpu*.py"))
    places = [PROJECT / "tests" / "conformance", PROJECT / "tests" / "unit" / "backend"]
    places += [path for path in named if not set(places) & set(path.parents)]
    where = [str(path.relative_to(PROJECT)) for path in places]
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *where]


def run(job: Job, limit: TimeLimit) -> str:
    """Run a job within the time that is left; return how it ended, in words."""
    words = job.line[1:]
    print(f"\n$ {' '.join(words)}", flush=True)
    environment = {**os.environ, ENVIRONMENT_VARIABLE: backend.use()}
    environment.update({"OMP_NUM_THREADS": "1"} if job.one_core else {})
    code = run_within(job.line, environment, limit.left(), job.output)
    if code is None:
        return f"ended by --minutes {limit.minutes:g}"
    return "done" if code == 0 else f"failed with exit code {code}"


def run_all(all_jobs: Sequence[Job], flags: argparse.Namespace, limit: TimeLimit, host: str) -> int:
    """Run all jobs; write run.json and the report after each. Return how many failed."""
    for unfinished in all_jobs:  # an earlier run's figures are none of this one
        (unfinished.output or Path(unfinished.line[-1])).unlink(missing_ok=True)
    read_scripts(flags.output)  # a damaged file there is told now, not after the first job
    within = "" if flags.minutes is None else f" within --minutes {limit.minutes:g}"
    ended = {job.name: {"name": job.name, "state": f"not reached{within}"} for job in all_jobs}
    for job in all_jobs:
        start = limit.seconds()
        if not limit.is_over():
            state = run(job, limit)
            ended[job.name] |= {"state": state, "seconds": round(limit.seconds() - start, 1)}
        document = {
            "host": host, "minutes": flags.minutes, "load_average": load_average(),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "jobs": list(ended.values()),
        }  # fmt: skip
        with atomic_text_file(flags.output / RUN) as file:
            json.dump(document, file, indent=1)
        report = write_report(flags.output)
    print(f"\nreport in {report}")
    for row in ended.values():
        if row["state"] != "done":
            print(f"{row['name']}: {row['state']}")
    return sum(str(row["state"]).startswith("failed") for row in ended.values())


def main() -> None:
    parser = new_parser("python -m benchmarks", "All benchmarks.")
    add = parser.add_argument
    add("--backend", choices=FRAMEWORKS)
    add("--device", default="cpu", help="cpu, 0, cuda:0")
    add("--output", type=Path, default=Path("runs/bench"), metavar="P", help="folder of the JSON")
    add("--only", nargs="+", choices=[*names(), *FURTHER], metavar="NAME", help="default: all")
    add("--minutes", type=float, metavar="N", help="limit; default: 10 on a GPU, none on a CPU")
    flags = parser.parse_args()
    if flags.minutes is not None and not flags.minutes > 0:
        raise UserError(f"--minutes {flags.minutes}; a number above 0 is needed")
    backend.use(flags.backend)
    device = backend.device.resolve(flags.device)
    if flags.minutes is None and device != CPU:
        flags.minutes = 10.0
    flags.output.mkdir(parents=True, exist_ok=True)
    where = ", ".join([host(), *(gpus() if device != CPU else [])])
    failed = run_all(jobs(flags, device), flags, TimeLimit(flags.minutes), where)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    run_command(main)
