"""Milliseconds of the gradients that two fast paths of a training step make anew.

    OMP_NUM_THREADS=1 python -m benchmarks.gradients --backend torch --device cpu

Joined are two channels-last maps that went through SiLU, as in C3, or of which the first one is
doubled, as in the neck: by the framework's `cat`, whose gradients are parts of one, beside
`ops.cat`. Taken are the rows of positives and the column of objectness, as by the loss: by two
operations, in half precision with the casts of whole maps, beside `fused.take_rows_and_column`.
Both ways must give the same gradients to rounding.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import backend
from backend import amp, autograd, fused, ops
from benchmarks.side_by_side import (
    Run,
    Timing,
    choose_device,
    finish,
    keep,
    new_parser,
    require_equal_tensors,
    time_in_turns,
)
from utils.cli.flags import from_one
from utils.processes.command import run_command
from utils.processes.host_memory import keep_freed_memory

# (channels, cells of a side at 320 px) of the maps that YOLOv5n's C3 layers and neck join.
JOINED = ((16, 80), (32, 40), (64, 20), (128, 10))
JOINED_DOUBLED = ((64, 40), (128, 20))
OUTPUTS = 85  # numbers of a row: a box, objectness, 80 classes
ANCHORS = 3
POSITIVES_AN_IMAGE = 40  # of the finest level
OBJECTNESS = 4
TOLERANCE = {"float32": 1e-6, "bfloat16": 0.02}  # of the largest value


def joined_as_parts(maps: Sequence[Any]) -> Any:
    return importlib.import_module(backend.use()).cat(list(maps), 1)


def joined_apart(maps: Sequence[Any]) -> Any:
    return ops.cat(maps, dim=1)


def two_operations(x: Any, index: Any, column: int) -> tuple[Any, Any]:
    wide = ops.cast(x, "float32")
    return ops.take_rows(wide, index), wide[:, column]


class Work:
    """Inputs of a case, and how its result is computed of them."""

    def __init__(self, arrays: Sequence[np.ndarray], dtype: str, device: str) -> None:
        self.dtype, self.device = dtype, device
        self.variables = [autograd.variable(array, device) for array in arrays]

    def inputs(self) -> list[Any]:
        """Return the inputs in the precision of the case, as layers return them."""
        if self.dtype == "float32":
            return [x * 1.0 for x in self.variables]
        found = []
        with amp.autocast(self.device, self.dtype):
            for x in self.variables:
                size = x.shape[x.ndim - 1]
                unit = ops.tensor(np.eye(size, dtype=np.float32), self.device)
                found.append(ops.matmul(x.reshape(-1, size), unit).reshape(*x.shape))
        return found

    def gradients(self, result: Callable[[list[Any]], Any]) -> list[Any]:
        return autograd.gradients(result(self.inputs()), self.variables)


def join_case(
    channels: int, side: int, images: int, dtype: str, device: str, doubles: bool = False
) -> tuple[Work, dict[str, Callable[[list[Any]], Any]]]:
    random = np.random.Generator(np.random.Philox(channels))
    shape = images, side, side, channels
    shapes = (images, side // 2, side // 2, channels) if doubles else shape, shape
    arrays = [random.normal(0, 1, size).astype(np.float32) for size in shapes]
    outer = random.normal(0, 1, (*shape[:3], 2 * channels)).astype(np.float32)
    weights = ops.tensor(outer, device).permute(0, 3, 1, 2)

    def of(join: Callable[[Sequence[Any]], Any]) -> Callable[[list[Any]], Any]:
        def result(maps: list[Any]) -> Any:
            first, second = (ops.silu(x.permute(0, 3, 1, 2)) for x in maps)
            first = ops.upsample_nearest_2x(first) if doubles else first
            return ops.sum(join([first, second]) * weights)

        return result

    return Work(arrays, dtype, device), {"parts": of(joined_as_parts), "apart": of(joined_apart)}


def rows_case(
    images: int, side: int, dtype: str, device: str
) -> tuple[Work, dict[str, Callable[[list[Any]], Any]]]:
    random = np.random.Generator(np.random.Philox(0))
    cells = images * ANCHORS * side**2
    rows = random.normal(0, 1, (cells, OUTPUTS)).astype(np.float32)
    chosen = random.integers(0, cells, images * POSITIVES_AN_IMAGE)
    index = ops.tensor(chosen, device)

    def of(take: Callable[..., tuple[Any, Any]]) -> Callable[[list[Any]], Any]:
        def result(maps: list[Any]) -> Any:
            taken, column = take(maps[0], index, OBJECTNESS)
            return ops.sum(taken * taken) + ops.sum(column * column)

        return result

    ways = {"two operations": of(two_operations), "one": of(fused.take_rows_and_column)}
    return Work([rows], dtype, device), ways


def main() -> None:
    parser = new_parser("gradients", "Milliseconds of gradients made anew.", repeats=30)
    parser.add_argument("--batch", type=from_one, default=16, help="images per step")
    flags = parser.parse_args()
    device = choose_device(flags)
    keep_freed_memory()
    timings: list[Timing] = []
    halves = [dtype for dtype in amp.supported(device) if dtype in TOLERANCE]
    for dtype in ("float32", *halves):
        cases = {
            f"join 2 x {channels}x{side}x{side}": join_case(
                channels, side, flags.batch, dtype, device
            )
            for channels, side in JOINED
        }
        for channels, side in JOINED_DOUBLED:
            cases[f"join, doubled, 2 x {channels}x{side}x{side}"] = join_case(
                channels, side, flags.batch, dtype, device, doubles=True
            )
        cases["rows and a column, 40x40 cells"] = rows_case(flags.batch, 40, dtype, device)
        for case, (work, ways) in cases.items():
            plain, fast = map(work.gradients, ways.values())
            require_equal_tensors("gradients", plain, fast, TOLERANCE[dtype])
            runs: dict[str, Run] = {
                name: (lambda work=work, way=way: work.gradients(way)) for name, way in ways.items()
            }
            timings += time_in_turns(f"{case}, {dtype}", runs, device, flags.repeats)
            keep(flags, timings, device)
    finish(flags, timings, device)


if __name__ == "__main__":
    run_command(main)
