"""Milliseconds of BatchNorm and SiLU of all layers of YOLOv5n, forward and backward.

    OMP_NUM_THREADS=2 python -m benchmarks.norm_silu --backend torch --device cpu

The reference are the two layers one after the other, `together` is `fused.batch_norm_silu`. Each
layer runs on maps of its own, as in a step, and both must give the same gradients to rounding.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

from collections.abc import Callable
from typing import Any

import numpy as np

from backend import autograd, fused, nn, ops
from benchmarks.side_by_side import (
    Run,
    choose_device,
    finish,
    new_parser,
    require_equal_tensors,
    time_in_turns,
)
from utils.cli.flags import from_one
from utils.processes.command import run_command
from utils.processes.host_memory import keep_freed_memory

TOLERANCE = 1e-4  # of the largest value: float32 sums in another order
# (channels, cells of a side at 320 px, layers) of YOLOv5n.
LAYERS = (
    (16, 160, 1), (16, 80, 4), (32, 80, 2), (32, 40, 10), (64, 40, 3), (64, 20, 18),
    (128, 20, 4), (128, 10, 11), (256, 10, 4),
)  # fmt: skip


def apart(norm: Any, x: Any) -> Any:
    return ops.silu(norm(x))


class Layers:
    """Layers of one kind, their maps, and how both are computed."""

    def __init__(self, join: Callable[[Any, Any], Any], images: int, device: str) -> None:
        random = np.random.Generator(np.random.Philox(0))
        self.join, self.device = join, device
        self.norms: list[Any] = []
        self.maps: list[Any] = []
        self.outer: list[Any] = []
        for channels, side, number in LAYERS:
            for _ in range(number):
                shape = images, side, side, channels
                maps, outer = (random.normal(0, 1, shape).astype(np.float32) for _ in range(2))
                self.norms.append(nn.place(nn.BatchNorm2d(channels), device, "float32"))
                self.maps.append(autograd.variable(maps, device))
                self.outer.append(ops.tensor(outer, device).permute(0, 3, 1, 2))

    def run(self) -> list[Any]:
        """Return the gradients by the maps; the backward pass begins after the last layer."""
        total = ops.zeros((), device=self.device)
        for norm, maps, outer in zip(self.norms, self.maps, self.outer, strict=True):
            # An input that nothing else keeps, as a convolution returns it.
            y = self.join(norm, maps.permute(0, 3, 1, 2) * 1.0)
            total = total + ops.sum(y * outer)
        return autograd.gradients(total, self.maps)


def main() -> None:
    parser = new_parser("norm_silu", "Milliseconds of BatchNorm and SiLU.", repeats=10)
    parser.add_argument("--batch", type=from_one, default=16, help="images per step")
    flags = parser.parse_args()
    device = choose_device(flags)
    joins = {"one after the other": apart, "together": fused.batch_norm_silu}
    runs = {name: Layers(join, flags.batch, device).run for name, join in joins.items()}
    require_equal_tensors("gradients", *(run() for run in runs.values()), TOLERANCE)
    keep_freed_memory()
    candidates: dict[str, Run] = dict(runs)
    case = f"{sum(layers for *_, layers in LAYERS)} layers, {flags.batch} x 320 px"
    finish(flags, time_in_turns(case, candidates, device, flags.repeats), device)


if __name__ == "__main__":
    run_command(main)
