"""One table for a card, in images/s: training steps, an epoch, detection and validation.

    python -m benchmarks.card --device 0
    python -m benchmarks.card --device 0 --other 'python OTHER.py'

It needs no data: photographs are drawn as JPEG files. With --other, a trainer with YOLOv5's command
line trains on them too (`beside.py`). What --minutes does not reach is left out. On a CPU the sizes
are small, which shows only that everything runs. The steps' float32 is exact, as with --amp off:
without TF32; train.py chooses its precision.
"""

import argparse
import math
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.loader import draw_images
from benchmarks.side_by_side import (
    NotMeasuredError,
    Timing,
    choose_device,
    finish,
    new_parser,
    run_within,
)
from benchmarks.small_data import train
from duet import backend
from duet.backend.checks import CPU
from duet.utils.comparison.runs import device_samples
from duet.utils.comparison.settings import Document
from duet.utils.errors import UserError
from duet.utils.files.json_files import read_json
from duet.utils.processes.command import run_command

SHOWN = ("detect --nosave", "detect", "overlapped")  # rows of detect.py and validation
DRAWN = 100  # different images; a larger dataset repeats them, which costs as much to decode
CLASSES = 80  # as in COCO


class Size(NamedTuple):
    """How much is measured."""

    models: tuple[str, ...]
    img: int
    batch: int
    images: int
    repeats: int


ON_GPU = Size(("n", "s", "nu", "su"), 640, 64, 2000, 20)
ON_CPU = Size(("n", "nu"), 64, 2, 12, 2)


def write_photographs(folder: Path, images: int) -> Path:
    """Write a dataset of JPEGs in YOLO's format, a tenth of them again to validate."""
    drawn = draw_images(folder, min(images, DRAWN))
    for split, most in (("train", images), ("val", max(1, images // 10))):
        for part in ("images", "labels"):
            (folder / part / split).mkdir(parents=True)
        for index in range(most):
            sample = drawn[index % len(drawn)]
            boxes = zip(sample.class_index, sample.boxes_cxcywh_norm.tolist(), strict=True)
            text = "\n".join(f"{name} {' '.join(map(str, box))}" for name, box in boxes)
            shutil.copy(sample.image_path, folder / "images" / split / f"{index}.jpg")
            (folder / "labels" / split / f"{index}.txt").write_text(text, encoding="utf-8")
    data = folder / "photographs.yaml"
    names = [f"class{index}" for index in range(CLASSES)]
    data.write_text(
        f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {names}\n", encoding="utf-8"
    )
    return data


class Card:
    """Measures parts in processes of their own, within the remaining time."""

    def __init__(self, flags: argparse.Namespace, device: str, size: Size, folder: Path) -> None:
        self.device, self.size, self.folder, self.other = device, size, folder, flags.other
        self.end = time.monotonic() + 60 * flags.minutes
        self.data = write_photographs(folder, size.images)
        self.sizes = ["--img", str(size.img), "--batch", str(size.batch)]

    def rows(self) -> Iterator[Timing]:
        """Yield rows; those that take least time for what they show come first."""
        repeats = ["--models", *self.size.models, *self.sizes, "--repeats", str(self.size.repeats)]
        yield from self.timings("step_table", *repeats, "--execution", "eager")
        yield from self.epoch()
        yield from self.others() if self.other else ()
        source = ["--source", str(self.folder / "images" / "val"), "--images", "1000"]
        for script, given in (("detect", source), ("val", ["--data", str(self.data)])):
            found = self.timings(script, *self.sizes, *given, "--repeats", "2")
            yield from (row for row in found if row.name in SHOWN)
        if self.device != CPU:
            yield from self.timings("step_table", *repeats, "--execution", "compiled")

    def epoch(self) -> Iterator[Timing]:
        """Train two epochs with train.py; the first is a warm-up."""
        if time.monotonic() > self.end:
            return
        samples = self.folder / "busy"
        line = [*self.sizes, "--epochs", "2", "--data", str(self.data), "--cfg", "yolov5n"]
        line += ["--weights", "", "--noplots", "--device", self.device, "--backend", backend.use()]
        try:
            with device_samples(self.device, samples, "utilization.gpu"):
                last = train(line)[-1]
        except NotMeasuredError as error:
            print(error)
            return
        seconds = last["seconds/epoch"]
        waits, validation = (last[f"seconds/{name}"] for name in ("data_wait", "validation"))
        name = f"{waits / seconds:.0%} waiting for images, {validation / seconds:.0%} validation"
        yield self.row(f"an epoch of train.py{busy_share(samples)}", name, seconds)

    def others(self) -> Iterator[Timing]:
        """Train two epochs with another trainer and with ours."""
        path = self.folder / "beside.json"
        line = [*self.sizes, "--other", self.other, "--data", str(self.data), "--epochs", "2"]
        line += ["--rounds", "1", "--workers", "8", "--allow-unequal", "--json", str(path)]
        self.run("beside", *line, device=self.device.removeprefix("cuda:"))
        runs: dict[str, list[Document]] = read_json(path)["runs"] if path.exists() else {}
        for side, (run,) in runs.items():
            for epoch in run["epochs"]:
                yield self.row("an epoch of both trainers", side, epoch["seconds"])

    def row(self, case: str, name: str, seconds: float) -> Timing:
        spent = (1000 * seconds,) * 3
        return Timing(case, name, *spent, 1, math.nan, images=self.size.images)

    def timings(self, script: str, *flags: str) -> list[Timing]:
        """Return the rows that a script of this folder measured before its time was over."""
        path = self.folder / f"{script}.json"
        path.unlink(missing_ok=True)
        self.run(script, *flags, "--json", str(path))
        found = read_json(path)["timings"] if path.exists() else []
        none = dict.fromkeys(("ratio_from", "ratio_to", "ratio_fastest"))
        return [Timing(**{**row, **none, "ratio": math.nan}) for row in found]

    def run(self, script: str, *flags: str, device: str = "") -> None:
        line = [sys.executable, "-m", f"benchmarks.{script}", *flags, "--backend", backend.use()]
        left = self.end - time.monotonic()
        line += ["--device", device or self.device]
        if left <= 0 or run_within(line, None, left) != 0:
            print(f"not finished: {shlex.join(line)}", flush=True)


def busy_share(samples: Path) -> str:
    """Return how busy a GPU was from its first work to its last."""
    words = samples.read_text(encoding="utf-8").split() if samples.exists() else []
    shares = np.trim_zeros([int(word) for word in words if word.isdecimal()])
    return f", GPU {statistics.mean(shares):.0f}% busy" if len(shares) else ""


def main() -> None:
    parser = new_parser("card", "One table for a card, in images/s.", repeats=ON_GPU.repeats)
    add = parser.add_argument
    add("--other", default="", metavar="COMMAND", help="another trainer, with its own flags")
    add("--minutes", type=float, default=10.0, metavar="N", help="limit")
    flags = parser.parse_args()
    if not flags.minutes > 0:
        raise UserError(f"--minutes {flags.minutes}; a number above 0 is needed")
    device = choose_device(flags)
    size = ON_CPU if device == CPU else ON_GPU._replace(repeats=flags.repeats)
    with TemporaryDirectory() as folder:
        finish(flags, list(Card(flags, device, size, Path(folder)).rows()), device)


if __name__ == "__main__":
    run_command(main)
