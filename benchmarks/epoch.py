"""Milliseconds of a training epoch with validation, read from results.csv of train.py.

    python -m benchmarks.epoch --data shapes --img 320 --batch 16 --device cpu
    python -m benchmarks.epoch --table --data coco.yaml --img 640 --device 0

Each candidate is train.py with other flags, run as a process of its own, in turns; the first epoch
of each process warms up and is left out. All see the same batches from the same seed. --table runs
YOLOv5n, s and m at batch 16 and 64 in float32 and bfloat16, eager and compiled. A candidate that
fails, or whose work.json differs from that of the first of its case, is named with its reason and
has no figure. The others still run, and the exit code is 1.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.side_by_side import (
    NotMeasuredError,
    Timing,
    choose_device,
    finish,
    keep,
    new_parser,
    rows_of,
)
from utils.cli.flags import from_one
from utils.comparison.load import LoadWatch
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import images_of
from utils.errors import UserError
from utils.processes.command import run_command

Flags = Sequence[str]

PLAIN: Flags = ("--layout", "contiguous", "--amp", "off")  # a GPU would take a half precision
FAST: Flags = ("--bbox_iou_optim", "--multi_tensor_optimizer", "--cache", "ram")
TABLE: Mapping[str, Flags] = {
    "float32, eager": ("--amp", "off", *FAST),
    "bfloat16, eager": ("--amp", "bf16", *FAST),
    "float32, compiled": ("--amp", "off", "--compile", *FAST),
    "bfloat16, compiled": ("--amp", "bf16", "--compile", *FAST),
}
# Of work.json: what all candidates of a case must have done alike.
WORK = ("batches_sha1", "optimizer_steps", "parameters")
TABLE_MODELS, TABLE_BATCHES = ("n", "s", "m"), (16, 64)


@dataclass(frozen=True)
class Trained:
    """One process of train.py: milliseconds of its epochs without the first, and its work."""

    milliseconds: list[float]
    work: dict[str, object]


def train(command: Flags) -> Trained:
    """Run train.py.

    Raises:
        NotMeasuredError: it ended with another exit code than 0.
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
        document = json.loads((Path(folder) / "epoch" / "work.json").read_text(encoding="utf-8"))
    milliseconds = [1000 * float(row["seconds/epoch"]) for row in rows[1:]]
    return Trained(milliseconds, {name: document["work"][name] for name in WORK})


def require_equal_work(found: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Raise NotMeasuredError if two runs of one case did not do the same."""
    for name in WORK:
        if found[name] != wanted[name]:
            raise NotMeasuredError(
                f"unequal work: {name} is {found[name]}, and {wanted[name]} in the first run"
            )


def time_processes(
    case: str, commands: Mapping[str, Flags], repeats: int, images: int
) -> list[Timing]:
    """Time each command in turns and print its images per second; ratios refer to the first.

    Those that fail, or do other work than the first that did not fail, are named and left out.
    """
    spent: dict[str, list[float]] = {name: [] for name in commands}
    load = LoadWatch()
    wanted: dict[str, object] = {}
    for _ in range(repeats):
        for name in list(spent):
            try:
                trained = train(commands[name])
                wanted = wanted or trained.work
                require_equal_work(trained.work, wanted)
                spent[name] += trained.milliseconds
            except NotMeasuredError as error:
                print(f"{case}, {name}: not measured: {error}", flush=True)
                del spent[name]
    rows = rows_of(case, spent, next(iter(commands)), load.others(), images)
    for row in rows:
        print(f"{case}, {row.name}: {row.images_per_second:.0f} images/s", flush=True)
    return rows


def common_flags(flags: argparse.Namespace, device: str, model: str, batch: int) -> list[str]:
    """Return the flags that all candidates of one case have."""
    command = ["--device", device, "--data", flags.data, "--cfg", f"models/yolov5{model}.yaml"]
    command += ["--weights", "", "--img", str(flags.img), "--batch", str(batch)]
    command += ["--epochs", str(flags.epochs), "--workers", str(flags.workers)]
    return command + (["--backend", flags.backend] if flags.backend else [])


def main() -> None:
    parser = new_parser("epoch", "Milliseconds of a training epoch.", repeats=1)
    add = parser.add_argument
    add("--data", default="shapes", metavar="D")
    add("--img", type=from_one, default=320, metavar="PX")
    add("--models", nargs="+", metavar="M", help="n, s, m, l, x; default: n, with --table n s m")
    add("--batch", nargs="+", type=from_one, metavar="N", help="default: 16, with --table 16 64")
    add("--epochs", type=from_one, default=3, metavar="N", help="of each process, at least 2")
    add("--workers", type=int, default=8, metavar="N")
    add("--fast", default=" ".join(FAST), metavar="FLAGS", help="of the fast candidate, one text")
    add("--table", action="store_true", help="precision and compilation instead of plain and fast")
    flags = parser.parse_args()
    if flags.epochs < 2:
        raise UserError(f"--epochs {flags.epochs}; the first warms up, so 2 are needed")
    device = choose_device(flags)
    variants = TABLE if flags.table else {"plain": PLAIN, "fast": flags.fast.split()}
    images = len(images_of(load_dataset(flags.data), "train"))
    timings, asked = [], 0
    for model in flags.models or (TABLE_MODELS if flags.table else ("n",)):
        for batch in flags.batch or (TABLE_BATCHES if flags.table else (16,)):
            shared = common_flags(flags, device, model, batch)
            commands = {name: [*shared, *variant] for name, variant in variants.items()}
            case = f"{model}, {batch} x {flags.img} px"
            timings += time_processes(case, commands, flags.repeats, images)
            keep(flags, timings, device)
            asked += len(commands)
    finish(flags, timings, device)
    if len(timings) < asked:
        sys.exit(1)


if __name__ == "__main__":
    run_command(main)
