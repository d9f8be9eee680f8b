"""Milliseconds of a training step by the number of threads, on a machine that may be busy.

    OMP_WAIT_POLICY=PASSIVE python -m benchmarks.threads --backend torch --img 96 --batch 8

What is timed is the processor time of the thread that leads the step: its own part of each loop,
and what comes between the loops. On idle cores the others are done with theirs at the same time, so
this is how long a step takes there at least. On busy cores it says so too, where a clock does not.
The table also has the time of all threads. Threads that spin while they wait would count as
work: hence OMP_WAIT_POLICY.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import time
from collections.abc import Callable
from pathlib import Path

from backend import device
from backend.checks import CPU
from benchmarks.side_by_side import Timing, choose_device, finish, new_parser, rows_of
from benchmarks.train_step import PLAIN, Candidate, draw_batch, start, stepping
from utils.cli.flags import from_one
from utils.comparison.load import LoadWatch
from utils.errors import UserError
from utils.processes.command import run_command
from utils.processes.host_memory import keep_freed_memory
from utils.report.stage_timer import StageTimer

Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {
    "of the leading thread": time.thread_time,
    "of all threads": time.process_time,
}


def time_threads(
    run: Callable[[], object], case: str, numbers: list[int], repeats: int
) -> list[Timing]:
    """Time a step with each number of threads in turns; the first number is the reference."""
    load = LoadWatch()
    spent: dict[str, dict[str, list[float]]] = {
        name: {f"threads: {number}": [] for number in numbers} for name in CLOCKS
    }
    for _ in range(repeats):
        for number in numbers:
            device.set_host_threads(number)
            run()  # the first one starts threads
            before = {name: clock() for name, clock in CLOCKS.items()}
            run()
            for name, clock in CLOCKS.items():
                spent[name][f"threads: {number}"].append(1000 * (clock() - before[name]))
    others = load.others()
    return [
        row
        for name, by_number in spent.items()
        for row in rows_of(f"{case}, {name}", by_number, f"threads: {numbers[0]}", others)
    ]


def main() -> None:
    parser = new_parser("threads", "A training step by the number of threads.", repeats=10)
    parser.add_argument("--cfg", type=Path, default=Path("models/yolov5n.yaml"))
    parser.add_argument("--img", type=from_one, default=96, help="side of the images, pixels")
    parser.add_argument("--batch", type=from_one, default=8, help="images per step")
    parser.add_argument("--threads", nargs="+", type=from_one, default=[1, 2, 4], metavar="N")
    flags = parser.parse_args()
    chosen = choose_device(flags)
    if chosen != CPU:
        raise UserError(f"--device {chosen}: the threads are those of a CPU; use --device cpu")
    from models.training.step import train_step

    keep_freed_memory()
    batch = draw_batch(flags.batch, flags.img, num_classes=80)
    # The layout that train.py takes by itself: OneFlow has one alone.
    state = start(PLAIN, Candidate((), 0.0), flags, chosen)
    run = stepping(train_step, state, batch, StageTimer(chosen))
    case = f"{flags.cfg.stem}, {flags.batch} x {flags.img} px"
    finish(flags, time_threads(run, case, flags.threads, flags.repeats), chosen)


if __name__ == "__main__":
    run_command(main)
