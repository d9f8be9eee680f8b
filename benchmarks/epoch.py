"""Milliseconds of a training epoch with validation, as results.csv of train.py tells them.

    python -m benchmarks.epoch --data shapes --img 320 --batch 16 --device cpu
    python -m benchmarks.epoch --table --data coco.yaml --img 640 --device 0

Each candidate is train.py with other flags, run as a process of its own, in turns; the first epoch
of each process warms up and is left out. All see the same batches from the same seed. --table runs
YOLOv5n, s and m at batch 16 and 64 in float32 and bfloat16, eager and compiled. A candidate that
fails is named with its reason and has no figure; the others run all the same, the exit code is 1.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.side_by_side import Timing, choose_device, finish, new_parser
from utils.command import run_command
from utils.data.sources import list_images, load_dataset
from utils.errors import UserError

Flags = Sequence[str]

PLAIN: Flags = ("--layout", "contiguous")
FAST: Flags = ("--bbox_iou_optim", "--multi_tensor_optimizer", "--cache", "ram")
TABLE: Mapping[str, Flags] = {
    "float32, eager": ("--amp", "off", *FAST),
    "bfloat16, eager": ("--amp", "bf16", *FAST),
    "float32, compiled": ("--amp", "off", "--compile", *FAST),
    "bfloat16, compiled": ("--amp", "bf16", "--compile", *FAST),
}
TABLE_MODELS, TABLE_BATCHES = ("n", "s", "m"), (16, 64)


class NotMeasuredError(Exception):
    """Why a candidate has no figure."""


def epoch_milliseconds(command: Flags) -> list[float]:
    """Run train.py and return what its epochs took, without the first.

    Raises:
        NotMeasuredError: train.py ended with another exit code than 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = ("--project", folder, "--name", "epoch")
        done = subprocess.run(
            [sys.executable, "train.py", *command, *place],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            ended = f"train.py {' '.join(command)} ended with {done.returncode}"
            raise NotMeasuredError(f"{ended}: {done.stderr.strip()}")
        with open(Path(folder) / "epoch" / "results.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    return [1000 * float(row["seconds/epoch"]) for row in rows[1:]]


def time_processes(
    case: str, commands: Mapping[str, Flags], repeats: int, images: int
) -> list[Timing]:
    """Time each command in turns, without those that fail; the ratios refer to the first."""
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name in list(spent):
            try:
                spent[name] += epoch_milliseconds(commands[name])
            except NotMeasuredError as error:
                print(f"{case}, {name}: not measured: {error}", flush=True)
                del spent[name]
    medians = {name: statistics.median(times) for name, times in spent.items()}
    reference = medians.get(next(iter(commands)), math.nan)
    for name, median in medians.items():
        print(f"{case}, {name}: {1000 * images / median:.0f} images/s", flush=True)
    return [
        Timing(case, name, medians[name], min(times), max(times), len(times),
            ratio=medians[name] / reference)
        for name, times in spent.items()
    ]  # fmt: skip


def common_flags(flags: argparse.Namespace, device: str, model: str, batch: int) -> list[str]:
    """What all candidates of one case share."""
    command = ["--device", device, "--data", flags.data, "--cfg", f"models/yolov5{model}.yaml"]
    command += ["--weights", "", "--img", str(flags.img), "--batch", str(batch)]
    command += ["--epochs", str(flags.epochs), "--workers", str(flags.workers)]
    return command + (["--backend", flags.backend] if flags.backend else [])


def main() -> None:
    parser = new_parser("epoch", "Milliseconds of a training epoch.", repeats=1)
    add = parser.add_argument
    add("--data", default="shapes", metavar="D")
    add("--img", type=int, default=320, metavar="PX")
    add("--models", nargs="+", metavar="M", help="n, s, m, l, x; default: n, with --table n s m")
    add("--batch", nargs="+", type=int, metavar="N", help="default: 16, with --table 16 64")
    add("--epochs", type=int, default=3, metavar="N", help="of each process, at least 2")
    add("--workers", type=int, default=8, metavar="N")
    add("--fast", default=" ".join(FAST), metavar="FLAGS", help="of the fast candidate, one text")
    add("--table", action="store_true", help="precision and compilation instead of plain and fast")
    flags = parser.parse_args()
    if flags.epochs < 2:
        raise UserError(f"--epochs {flags.epochs}; the first warms up, so 2 are needed")
    device = choose_device(flags)
    variants = TABLE if flags.table else {"plain": PLAIN, "fast": flags.fast.split()}
    images = len(list_images(load_dataset(flags.data).train))
    timings, asked = [], 0
    for model in flags.models or (TABLE_MODELS if flags.table else ("n",)):
        for batch in flags.batch or (TABLE_BATCHES if flags.table else (16,)):
            shared = common_flags(flags, device, model, batch)
            commands = {name: [*shared, *variant] for name, variant in variants.items()}
            case = f"{model}, {batch} x {flags.img} px"
            timings += time_processes(case, commands, flags.repeats, images)
            asked += len(commands)
    finish(flags, timings, device)
    if len(timings) < asked:
        sys.exit(1)


if __name__ == "__main__":
    run_command(main)
