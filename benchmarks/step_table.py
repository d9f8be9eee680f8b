"""Images per second of training steps: model by batch, in each precision, eager and compiled.

    python -m benchmarks.step_table --device 0

The images are noise with drawn boxes, so no dataset is needed. All of train.py's fast paths are on.
Steps follow each other as in training, without a wait between them; each lasts from one mark in the
device's queue to the next. Each row is a separate process. A row that the framework or the memory
does not allow is listed with the reason. The JSON is written after each row: a run that is stopped
keeps its rows, and lists the others.
"""

import argparse
import json
import logging
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import product
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import NamedTuple

from benchmarks.side_by_side import (
    NotMeasuredError,
    Run,
    Timing,
    choose_device,
    machine,
    new_parser,
    write_json,
)
from benchmarks.train_step import Candidate, draw_batch, start
from duet import backend
from duet.backend import amp, autograd
from duet.backend.checks import CPU
from duet.utils.cli.flags import from_one
from duet.utils.comparison.document import number
from duet.utils.comparison.load import LoadWatch
from duet.utils.memory import keep_freed_memory
from duet.utils.processes.command import run_command

FAST = ("--bbox_iou_optim", "--multi_tensor_optimizer")
PRECISIONS = {"float32": "off", "bfloat16": "bf16"}  # and train.py's --amp
EXECUTIONS = {"eager": (), "compiled": ("--compile",)}


class Cell(NamedTuple):
    """The training of one row."""

    model: str  # n, s, m, l, x, or a model YAML
    batch: int
    img: int
    precision: str
    execution: str

    @property
    def case(self) -> str:
        return f"{self.model}, {self.batch} x {self.img} px"

    @property
    def name(self) -> str:
        return f"{self.precision}, {self.execution}"


def build_step(cell: Cell, device: str) -> Run:
    """Return a training step with all fast paths, on a batch in page-locked memory.

    Raises:
        NotMeasuredError: backend or device does not support it.
    """
    if cell.precision != "float32" and cell.precision not in amp.supported(device):
        raise NotMeasuredError(f"no {cell.precision} with {backend.use()} on {device}")
    problem = autograd.compile_problem(device) if cell.execution == "compiled" else None
    if problem is not None:
        raise NotMeasuredError(f"not compiled: {problem}")
    from duet.models.training.step import train_step
    from duet.models.training.step_watch import StageTimer

    flags = (*FAST, "--amp", PRECISIONS[cell.precision], *EXECUTIONS[cell.execution])
    cfg = Path(cell.model if "." in cell.model else f"models/yolov5{cell.model}.yaml")
    settings = argparse.Namespace(cfg=cfg, img=cell.img, batch=cell.batch)
    state = start("step", Candidate(flags, 0.0), settings, device)
    batch = draw_batch(cell.batch, cell.img, state.model.spec.num_classes)
    backend.device.page_lock(batch.images, device)
    return partial(train_step, state, batch, StageTimer(device))


def seconds_of_steps(run: Run, device: str, steps: int) -> list[float]:
    """Return the seconds of each of several consecutive steps."""
    marks = [backend.device.mark(device)]
    for _ in range(steps):
        run()
        marks.append(backend.device.mark(device))
    pairs = zip(marks[:-1], marks[1:], strict=True)
    return [backend.device.seconds_between(*pair) for pair in pairs]


def measure(cell: Cell, device: str, warm_up: int, steps: int) -> Timing:
    """Return the row of a cell.

    Raises:
        NotMeasuredError: backend, device or memory does not allow it.
    """
    try:
        run = build_step(cell, device)
        warnings = warnings_of(run, warm_up)
        if cell.execution == "compiled" and warnings:
            raise NotMeasuredError("; ".join(warnings))
        load = LoadWatch()
        spent = [1000 * seconds for seconds in seconds_of_steps(run, device, steps)]
        return Timing(
            cell.case, cell.name, statistics.median(spent), min(spent), max(spent), steps,
            math.nan, load.others(), images=cell.batch,
            peak_bytes=backend.device.peak_memory(run, device),
        )  # fmt: skip
    except Exception as error:
        if not backend.device.is_out_of_memory(error):
            raise
        raise NotMeasuredError("out of memory") from error


def warnings_of(run: Run, times: int) -> list[str]:
    """Run a step several times; return warnings, such as a step that is not compiled."""
    handler = BufferingHandler(10**6)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        for _ in range(times):
            run()
    finally:
        logging.getLogger().removeHandler(handler)
    return [record.getMessage() for record in handler.buffer]


def in_a_process(cell: Cell, flags: argparse.Namespace, device: str) -> Timing:
    """Measure a cell in a separate process.

    Raises:
        NotMeasuredError: as `measure`, or the process failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cell.json"
        line = [sys.executable, "-m", "benchmarks.step_table", "--backend", backend.use()]
        line += ["--device", device, "--models", cell.model, "--batch", str(cell.batch)]
        line += ["--img", str(cell.img), "--precision", cell.precision]
        line += ["--execution", cell.execution, "--warm-up", str(flags.warm_up)]
        line += ["--repeats", str(flags.repeats), "--json", str(path)]
        done = subprocess.run(
            line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="locale", check=False
        )
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]
            raise NotMeasuredError(f"exit code {done.returncode}: {said}")
        document = json.loads(path.read_text(encoding="utf-8"))
    for left in document["left_out"]:
        raise NotMeasuredError(left["reason"])
    (row,) = document["timings"]
    return Timing(**{**row, "ratio": math.nan})


def measure_all(cells: Sequence[Cell], flags: argparse.Namespace, device: str) -> None:
    """Measure each cell, print its row, and write the JSON."""
    timings: list[Timing] = []
    left_out = dict.fromkeys(cells, "not reached before the end")
    for cell in [*cells, None]:
        if flags.json is not None:
            rows = [{"case": f"{x.case}, {x.name}", "reason": y} for x, y in left_out.items()]
            write_json(flags.json, machine(device), timings, device, left_out=rows)
        if cell is None:
            return
        try:
            if len(cells) == 1:
                timing = measure(cell, device, flags.warm_up, flags.repeats)
            else:
                timing = in_a_process(cell, flags, device)
            timings.append(timing)
            del left_out[cell]
            figures = f"{number(timing.median)} ms, {number(timing.images_per_second)} images/s"
            print(f"{cell.case}, {cell.name}: {figures}", flush=True)
        except NotMeasuredError as error:
            left_out[cell] = str(error)
            print(f"{cell.case}, {cell.name}: not measured: {error}", flush=True)


def main() -> None:
    parser = new_parser("step_table", "Images per second of training steps.", repeats=20)
    add = parser.add_argument
    add("--models", nargs="+", default=["n", "s", "m"], metavar="M",
        help="n, s, m, l, x, or a model YAML")  # fmt: skip
    add("--batch", nargs="+", type=from_one, default=[16, 64], metavar="N")
    add("--img", type=from_one, default=640, metavar="PX")
    add("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    add("--execution", nargs="+", choices=EXECUTIONS, default=list(EXECUTIONS))
    add("--warm-up", type=from_one, default=5, metavar="N", help="steps before the timed ones")
    flags = parser.parse_args()
    device = choose_device(flags)
    if device == CPU:
        keep_freed_memory()
    # The cheapest first, so that a run that is stopped has most rows.
    each = product(flags.execution, flags.models, flags.batch, flags.precision)
    cells = [Cell(model, batch, flags.img, how, execution) for execution, model, batch, how in each]
    measure_all(cells, flags, device)


if __name__ == "__main__":
    run_command(main)
