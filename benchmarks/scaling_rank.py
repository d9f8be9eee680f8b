"""Measures training steps, sums and memory in one rank or several: `scaling_measure.py` starts it.

    python -m benchmarks.scaling_rank --ranks 2 --cfg models/yolov5n.yaml --json F

starts as many processes of itself, as train.py does. Rank 0 writes the figures. In a network of its
own (`unshare --net`), the loopback's counter says how many bytes the ranks exchange.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import backend
from backend import autograd, device, dist, nn, ops
from backend.checks import CPU
from backend.processes import this_process
from backend.select import FRAMEWORKS, choose
from utils.cli.flags import from_one, new_parser
from utils.files.atomic import atomic_text_file
from utils.processes import watchdog
from utils.processes.command import run_command
from utils.processes.host_memory import keep_freed_memory
from utils.processes.local_ranks import run_ranks
from utils.report.stage_timer import StageTimer

SUM_BYTES = (2**12, 2**18, 2**22, 2**25)
SUM_REPEATS, WARM_UP = 17, 2
LIMIT_SECONDS = 600.0


def start_ranks(count: int, name: str | None) -> int:
    """Run this command in so many processes; return the exit code of all."""
    if ip := shutil.which("ip"):  # a new network's loopback is down
        subprocess.run([ip, "link", "set", "lo", "up"], check=False, capture_output=True)
    command = [sys.executable, "-m", "benchmarks.scaling_rank", *sys.argv[1:]]
    return run_ranks(command, choose(name), {"WORLD_SIZE": str(count)})


def new_step(flags: argparse.Namespace) -> Callable[[], object]:
    """Return a training step of the plain path on `flags.images` images of this rank."""
    from benchmarks.train_step import CANDIDATES, PLAIN, draw_batch, start
    from models.detector import images_to_tensor
    from models.training.step import GRADIENT_NORM_LIMIT

    flags.batch = flags.images * this_process().world_size
    state = start(PLAIN, CANDIDATES[PLAIN], flags, CPU)
    batch = draw_batch(flags.images, flags.img, num_classes=80)
    parallel = dist.data_parallel(state.model)
    parameters = [parameter for _, parameter in nn.named_parameters(state.model)]
    rates, stage = (1e-4, 1e-4, 1e-4), StageTimer(CPU)

    def step() -> None:
        images = images_to_tensor(batch.images, CPU, state.dtype, False)
        with dist.averaging(parallel, last=True):
            autograd.value_and_backward(parallel, state.step_loss, images, batch.targets, stage)
        ops.to_numpy(autograd.clip_gradients(parameters, GRADIENT_NORM_LIMIT))
        state.optimizer.step(rates, 0.9)
        state.optimizer.zero_grad()
        state.ema.update(state.model)

    return step


def time_sums() -> list[dict[str, float]]:
    """Return median seconds of sums over the ranks, by their size."""
    rows = []
    for size in SUM_BYTES:
        x = ops.tensor(np.zeros(size // 4, np.float32))
        spent = [device.milliseconds(lambda x=x: dist.sum_(x), CPU) for _ in range(SUM_REPEATS)]
        rows.append({"bytes": size, "seconds": statistics.median(spent[WARM_UP:]) / 1000})
    return rows


def loopback_bytes() -> int:
    """Return the bytes that passed this network's loopback since it is up."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    (line,) = (line for line in lines if line.strip().startswith("lo:"))
    return int(line.partition(":")[2].split()[0])


def status_bytes(name: str) -> int:
    """Return a size of this process; the peak that `resource` reports may be its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def measure(flags: argparse.Namespace) -> dict[str, object]:
    resident = status_bytes("VmRSS")
    step = new_step(flags)
    for _ in range(WARM_UP):
        step()
    before = loopback_bytes()
    seconds = [device.milliseconds(step, CPU) / 1000 for _ in range(flags.steps)]
    passed = (loopback_bytes() - before) / flags.steps / this_process().world_size
    return {
        "ranks": this_process().world_size,
        "images": flags.images,
        "img": flags.img,
        "seconds": statistics.median(seconds),
        "memory": status_bytes("VmHWM") - resident,
        "exchanged": passed,
        "sums": time_sums() if this_process().world_size > 1 else [],
    }


def main() -> None:
    parser = new_parser("python -m benchmarks.scaling_rank", "One rank of benchmarks.scaling.")
    add = parser.add_argument
    add("--backend", choices=FRAMEWORKS)
    add("--ranks", type=from_one, default=1, metavar="N")
    add("--cfg", type=Path, default=Path("models/yolov5n.yaml"))
    add("--img", type=from_one, default=320, metavar="PX")
    add("--images", type=from_one, default=4, metavar="N", help="of each rank, a step")
    add("--steps", type=from_one, default=5, metavar="N")
    add("--json", type=Path, required=True, metavar="F")
    flags = parser.parse_args()
    if flags.ranks > 1 and this_process().world_size == 1:
        sys.exit(start_ranks(flags.ranks, flags.backend))
    backend.use(flags.backend)
    keep_freed_memory()
    dist.start(CPU, LIMIT_SECONDS)
    if this_process().world_size > 1:
        watchdog.start(LIMIT_SECONDS, dist.all_gather)
    figures = measure(flags)
    if this_process().is_main:
        with atomic_text_file(flags.json) as file:
            json.dump(figures, file)
    dist.stop()


if __name__ == "__main__":
    run_command(main, several=True)
