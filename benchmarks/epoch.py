"""Milliseconds of a training epoch with validation, read from results.csv of train.py.

    python -m benchmarks.epoch --data shapes --img 320 --batch 16 --device cpu

Each candidate is train.py with other flags, run as a separate process, in turns; the first epoch of
each process is a warm-up and is left out. All see the same batches from the same seed. A candidate
that fails, or whose work.json differs from the first one's, is listed with the reason instead of a
figure. The other still runs, and the exit code is 1.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.side_by_side import (
    NotMeasuredError,
    Timing,
    choose_device,
    finish,
    new_parser,
    rows_of,
)
from duet.utils.cli.flags import from_one
from duet.utils.comparison.load import LoadWatch
from duet.utils.comparison.settings import REFERENCE
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import images_of
from duet.utils.errors import UserError
from duet.utils.json_files import read_json
from duet.utils.processes.command import run_command
from duet.utils.report.results import read_results

# Without these, a GPU would take a half precision and fused paths.
PLAIN: Sequence[str] = ("--layout", "contiguous", "--amp", "off", *REFERENCE)
FAST: Sequence[str] = ("--bbox_iou_optim", "--multi_tensor_optimizer", "--cache", "ram")
# Entries of work.json that must be equal for all candidates.
WORK = ("batches_sha1", "optimizer_steps", "parameters")


def train(command: Sequence[str]) -> tuple[list[dict[str, float]], dict[str, object]]:
    """Run train.py; return the rows of its results.csv, and its work.

    Raises:
        NotMeasuredError: its exit code was not 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "train.py", *command, "--project", folder, "--name", "run"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            ended = f"train.py {' '.join(command)} ended with {done.returncode}"
            raise NotMeasuredError(f"{ended}: {done.stderr.strip()}")
        _, rows = read_results(Path(folder) / "run" / "results.csv")
        work = read_json(Path(folder) / "run" / "work.json")["work"]
    return rows, {name: work[name] for name in WORK}


def time_processes(
    case: str, commands: Mapping[str, Sequence[str]], repeats: int, images: int
) -> list[Timing]:
    """Time each command in turns; ratios refer to the first.

    Those that fail, or do other work than the first successful one, are listed and left out.
    """
    spent: dict[str, list[float]] = {name: [] for name in commands}
    load = LoadWatch()
    wanted: dict[str, object] = {}
    for _ in range(repeats):
        for name in list(spent):
            try:
                rows, work = train(commands[name])
                wanted = wanted or work
                if unequal := [x for x in WORK if work[x] != wanted[x]]:
                    raise NotMeasuredError(
                        f"unequal work: {unequal[0]} is {work[unequal[0]]}, and "
                        f"{wanted[unequal[0]]} in the first run"
                    )
                spent[name] += [1000 * row["seconds/epoch"] for row in rows[1:]]
            except NotMeasuredError as error:
                print(f"{case}, {name}: not measured: {error}", flush=True)
                del spent[name]
    return rows_of(case, spent, next(iter(commands)), load.others(), images)


def main() -> None:
    parser = new_parser("epoch", "Milliseconds of a training epoch.", repeats=1)
    add = parser.add_argument
    add("--data", default="shapes", metavar="D")
    add("--img", type=from_one, default=320, metavar="PX")
    add("--model", default="n", metavar="M", help="n, s, m, l, x")
    add("--batch", type=from_one, default=16, metavar="N")
    add("--epochs", type=from_one, default=3, metavar="N", help="of each process, at least 2")
    add("--workers", type=int, default=8, metavar="N")
    add("--fast", default=" ".join(FAST), metavar="FLAGS", help="of the fast candidate, one text")
    flags = parser.parse_args()
    if flags.epochs < 2:
        raise UserError(f"--epochs {flags.epochs}; the first warms up, so 2 are needed")
    device = choose_device(flags)
    shared = ["--device", device, "--data", flags.data]
    shared += ["--cfg", f"models/yolov5{flags.model}.yaml", "--weights", ""]
    shared += ["--img", str(flags.img), "--batch", str(flags.batch)]
    shared += ["--epochs", str(flags.epochs), "--workers", str(flags.workers)]
    shared += ["--backend", flags.backend] if flags.backend else []
    commands = {"plain": [*shared, *PLAIN], "fast": [*shared, *flags.fast.split()]}
    images = len(images_of(load_dataset(flags.data), "train"))
    case = f"{flags.model}, {flags.batch} x {flags.img} px"
    timings = time_processes(case, commands, flags.repeats, images)
    finish(flags, timings, device)
    if len(timings) < len(commands):
        sys.exit(1)


if __name__ == "__main__":
    run_command(main)
