"""Milliseconds of a training step for each way in which OpenMP's threads may wait.

    taskset -c 0,1 python -m benchmarks.waiting --backend torch --busy 0 1 4

A framework reads the variables when it is loaded, so each way is a process of its own, in turns.
As many processes as --busy says run at the same time on the same cores and only compute. Their
work is no part of the column "others".
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from backend.checks import CPU
from backend.openmp import SPINS, WAITING
from benchmarks.side_by_side import Timing, choose_device, finish, keep, new_parser, rows_of
from utils.comparison.load import LoadWatch
from utils.errors import UserError
from utils.processes.command import run_command

# The first is the reference: as libgomp waits if nothing is set.
WAYS: Mapping[str, Mapping[str, str]] = {
    "libgomp's own": {"GOMP_SPINCOUNT": "300000"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    **{f"{n:,} spins": {"GOMP_SPINCOUNT": str(n)} for n in sorted({1000, 4000, SPINS, 30_000})},
}


@contextlib.contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Run processes that compute, on the cores of this one, in the block."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def step(way: Mapping[str, str], arguments: Sequence[str]) -> float:
    """Return the median milliseconds of a step in a process of its own that waits in this way."""
    inherited = {name: value for name, value in os.environ.items() if name not in WAITING}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steps.json"
        subprocess.run(
            [sys.executable, "-m", "benchmarks.train_step", *arguments, "--json", str(path)],
            env={**inherited, **way}, stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        return json.loads(path.read_text(encoding="utf-8"))["timings"][0]["median"]


def time_ways(case: str, arguments: Sequence[str], rounds: int) -> list[Timing]:
    """Time every way once a round."""
    load = LoadWatch()
    spent: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            spent[name].append(step(way, arguments))
    return rows_of(case, spent, next(iter(WAYS)), load.others())


def main() -> None:
    parser = new_parser("waiting", "A training step by the way in which threads wait.", repeats=5)
    parser.add_argument("--img", default="320", help="side of the images, pixels")
    parser.add_argument("--batch", default="16", help="images per step")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="processes of each way")
    parser.add_argument("--busy", nargs="+", type=int, default=[0, 1], metavar="N",
        help="processes beside it that only compute, as several cases")  # fmt: skip
    flags = parser.parse_args()
    device = choose_device(flags)
    if device != CPU:
        raise UserError(f"--device {device}: threads are waited for on a CPU; use --device cpu")
    arguments = ["--device", CPU, "--repeats", str(flags.repeats), "--only", "plain"]
    arguments += ["--img", flags.img, "--batch", flags.batch]
    if flags.backend:
        arguments += ["--backend", flags.backend]
    timings: list[Timing] = []
    for number in flags.busy:
        with busy_processes(number):
            timings += time_ways(f"beside busy processes: {number}", arguments, flags.rounds)
        keep(flags, timings, device)
    finish(flags, timings, device)


if __name__ == "__main__":
    run_command(main)
