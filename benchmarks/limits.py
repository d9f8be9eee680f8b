"""The highest speed of a machine, and which fraction of it a training step reaches.

    OMP_NUM_THREADS=2 python -m benchmarks.limits --backend torch --device cpu

A convolution of many channels and a copy of a large array run at the highest rates that the
framework reaches there. A step is so many operations of convolutions: at that rate they would take
the printed time, if nothing else took any. A backward pass is counted as two forward passes.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import statistics
from pathlib import Path

import backend
from backend import amp, autograd, nn, ops
from backend.checks import CPU
from benchmarks.side_by_side import Run, Timing, choose_device, keep, new_parser
from benchmarks.train_step import Candidate, draw_batch, start
from utils.cli.flags import from_one
from utils.comparison.load import LoadWatch
from utils.processes.command import run_command
from utils.processes.host_memory import keep_freed_memory
from utils.report.stage_timer import StageTimer

# Of the convolution of 3x3: far more operations than numbers. Faster than a product of matrices
# where the library of products does not use all that a processor has.
CHANNELS, SIDE, IMAGES = 256, 40, 8
COPIED = 64 << 20  # bytes, more than a cache holds
PRECISIONS = {"float32": "off", "bfloat16": "bf16"}  # and the --amp of a step
PASSES = 3  # a forward pass, and a backward pass that is two


def fastest(run: Run, device: str, repeats: int) -> float:
    """Return the seconds of the fastest call."""
    return min(seconds_of(run, device, repeats))


def seconds_of(run: Run, device: str, repeats: int) -> list[float]:
    """Return the seconds of so many calls, after one that warms up."""
    run()
    return [backend.device.milliseconds(run, device) / 1000 for _ in range(repeats)]


def convolution_rate(dtype: str, device: str, repeats: int) -> float:
    """Return operations per second, an addition and a product being two."""
    layer = nn.place(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False), device, "float32")
    x = ops.full((IMAGES, CHANNELS, SIDE, SIDE), 0.5, device=device)
    if backend.device.supports("channels_last"):
        x = ops.channels_last(x)
    with amp.autocast(device, dtype), autograd.no_grad():
        seconds = fastest(lambda: layer(x), device, repeats)
    return 2 * IMAGES * (CHANNELS * 3 * SIDE) ** 2 / seconds


def copy_rate(device: str, repeats: int) -> float:
    """Return bytes per second, read and written both."""
    x = ops.zeros((COPIED // 4,), device=device)
    return 2 * COPIED / fastest(lambda: x * 1.0, device, repeats)


def step_seconds(
    flags: argparse.Namespace, amp_flag: str, device: str
) -> tuple[list[float], float]:
    """Return the seconds of each step, and its operations."""
    from models.graph import plan_layers
    from models.operations import count_gflops
    from models.training.step import train_step

    state = start("step", Candidate(("--amp", amp_flag), 0.0), flags, device)
    batch = draw_batch(flags.batch, flags.img, num_classes=80)
    timer = StageTimer(device)
    seconds = seconds_of(lambda: train_step(state, batch, timer), device, flags.repeats)
    gflops = count_gflops(plan_layers(state.model.spec), flags.img)
    return seconds, PASSES * flags.batch * gflops * 1e9


def rows(case: str, least: float, spent: list[float], others: float | None) -> list[Timing]:
    """Return a step beside the milliseconds that it would take at the highest rate."""
    median = statistics.median(spent)
    return [
        Timing(case, "at the best rate", least, least, least, len(spent), 1.0, others),
        Timing(case, "step", median, min(spent), max(spent), len(spent), median / least, others),
    ]


def main() -> None:
    parser = new_parser("limits", "What a training step could take at least.", repeats=10)
    parser.add_argument("--cfg", type=Path, default=Path("models/yolov5n.yaml"))
    parser.add_argument("--img", type=from_one, default=320, help="side of the images, pixels")
    parser.add_argument("--batch", type=from_one, default=16, help="images per step")
    flags = parser.parse_args()
    device = choose_device(flags)
    if device == CPU:
        keep_freed_memory()
    # The steps are those of --amp off: a rate of TF32 would be none that they could reach.
    backend.device.compute_exactly(device)
    timings: list[Timing] = []
    print(f"copies: {copy_rate(device, flags.repeats) / 1e9:.1f} GB/s")
    for dtype, amp_flag in PRECISIONS.items():
        if dtype != "float32" and dtype not in amp.supported(device):
            print(f"{dtype}: none on {device}")
            continue
        rate = convolution_rate(dtype, device, flags.repeats)
        load = LoadWatch()
        spent, operations = step_seconds(flags, amp_flag, device)
        seconds, least = min(spent), operations / rate
        case = f"{flags.cfg.stem}, {flags.batch} x {flags.img} px, {dtype}"
        milliseconds = [1000 * one for one in spent]
        timings += rows(case, 1000 * least, milliseconds, load.others())
        keep(flags, timings, device)
        print(
            f"{dtype}: convolutions {rate / 1e9:.0f} GFLOP/s; "
            f"a step of {operations / 1e9:.1f} GFLOP takes {1000 * seconds:.0f} ms, "
            f"at that rate {1000 * least:.0f}: {100 * least / seconds:.0f} % of it"
        )


if __name__ == "__main__":
    run_command(main)
