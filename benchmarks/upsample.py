"""Milliseconds to double feature maps by the nearest value, forward and backward.

    OMP_NUM_THREADS=2 python -m benchmarks.upsample --backend torch --device cpu

The reference is the framework's own `interpolate`, `chosen` is `ops.upsample_nearest_2x`. Both
must give the same maps, and the same gradients to rounding. Channels lie first or last in memory.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import backend
from backend import autograd, ops
from backend.select import FRAMEWORKS
from benchmarks.side_by_side import Run, choose_device, finish, keep, new_parser, time_in_turns
from utils.cli.flags import from_one
from utils.processes.command import run_command

TOLERANCE = 1e-5  # four float32 numbers up to 4, added in any order


class Order(NamedTuple):
    """How (B, C, H, W) maps lie in memory."""

    name: str
    kept: tuple[int, ...]
    seen: tuple[int, ...]  # what turns the kept order into B, C, H, W


ORDERS = (
    Order("first", (0, 1, 2, 3), (0, 1, 2, 3)),
    Order("last", (0, 2, 3, 1), (0, 3, 1, 2)),
)


def framework_own() -> Callable[[Any], Any]:
    """Return the framework's function, of the same name and arguments in both.

    This is the one import of a framework outside backend/, by name, for the time to beat. As an
    operation of the contract it would be code that training never calls.
    """
    package = FRAMEWORKS[backend.use()].package
    functional = importlib.import_module(f"{package}.nn.functional")
    return lambda x: functional.interpolate(x, scale_factor=2.0, mode="nearest")


class Doubling:
    """One function on one map, kept in one order of memory."""

    def __init__(self, function: Callable[[Any], Any], maps: np.ndarray, order: Order, device: str):
        self.function, self.order = function, order
        random = np.random.Generator(np.random.Philox(1))
        doubled = random.uniform(-1, 1, (*maps.shape[:2], *(2 * size for size in maps.shape[2:])))
        self.x, self.weights = (
            autograd.variable(np.ascontiguousarray(array.transpose(order.kept), np.float32), device)
            for array in (maps, doubled)
        )

    def forward(self) -> Any:
        with autograd.no_grad():
            return self.function(self.x.permute(*self.order.seen))

    def forward_backward(self) -> Any:
        y = self.function(self.x.permute(*self.order.seen))
        weights = self.weights.detach().permute(*self.order.seen)
        return autograd.gradients(ops.sum(y * weights), [self.x])[0]


def require_equal(reference: Doubling, other: Doubling) -> None:
    """Raise SystemExit if the maps or the gradients differ."""
    maps, gradients = (
        [ops.to_numpy(getattr(doubling, name)()) for doubling in (reference, other)]
        for name in ("forward", "forward_backward")
    )
    if not np.array_equal(*maps) or not np.allclose(*gradients, TOLERANCE, TOLERANCE):
        raise SystemExit("the maps or gradients differ: the times compare unequal work")


def main() -> None:
    parser = new_parser("upsample", "Milliseconds to double feature maps.", repeats=30)
    parser.add_argument("--img", type=from_one, default=320, metavar="PIXELS")
    parser.add_argument("--batch", type=from_one, default=16)
    parser.add_argument("--channels", type=from_one, default=128, help="at stride 32; half at 16")
    flags = parser.parse_args()
    device = choose_device(flags)
    random = np.random.Generator(np.random.Philox(0))
    timings = []
    for channels, stride in ((flags.channels, 32), (flags.channels // 2, 16)):
        side = flags.img // stride
        maps = random.uniform(-1, 1, (flags.batch, channels, side, side))
        for order in ORDERS:
            own = Doubling(framework_own(), maps, order, device)
            chosen = Doubling(ops.upsample_nearest_2x, maps, order, device)
            require_equal(own, chosen)
            for name in ("forward", "forward_backward"):
                case = f"{channels}x{side}x{side} {order.name}, {name.replace('_', '+')}"
                runs: dict[str, Run] = {
                    "framework": getattr(own, name),
                    "chosen": getattr(chosen, name),
                }
                timings += time_in_turns(case, runs, device, flags.repeats)
                keep(flags, timings, device)
    finish(flags, timings, device)


if __name__ == "__main__":
    run_command(main)
