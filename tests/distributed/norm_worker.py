"""One rank of those whose BatchNorm works over ranks, by our formulas and by PyTorch's function.

`python -m tests.distributed.norm_worker FOLDER` under torchrun. PyTorch's function calls the
kernels of `norm_kernels.py` here. Each case is written as a file of arrays for each way.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import backend
from backend import autograd, nn, ops
from backend.processes import this_process
from tests.conformance.checks_dist import network  # noqa: F401  registers its checks
from tests.conformance.judging import CHECKS, Backend, uniform
from tests.distributed.norm_kernels import KERNELS
from utils.processes.command import run_command

TIMEOUT_S = 240.0
CHANNELS, EPS, MOMENTUM = 3, 1e-3, 0.03  # the latter two as in the models
# Images of each rank, height, width.
CASES = {
    "equal": ((2, 2), 4, 5),
    "unequal": ((3, 1), 4, 5),
    "no images on the second": ((3, 0), 4, 5),
    "no images on the first": ((0, 2), 4, 5),
    "one pixel a rank": ((1, 1), 1, 1),
    "one pixel and many": ((1, 4), 1, 1),
}
LAYOUTS = ("contiguous_format", "channels_last")
# A GPU is not asked whether the ranks have one value in all: it would wait for each layer.
ELSEWHERE = ("one_value_of_all_ranks_is_refused",)
DTYPES = ("float64", "float32", "bfloat16", "float16")


def of_layer(case: str, layout: str, dtype: str) -> dict[str, np.ndarray]:
    """Return output and gradients of a rank's part, and the layer's state after it."""
    torch = importlib.import_module("torch")
    counts, height, width = CASES[case]
    rank = this_process().rank
    shape = (counts[rank], CHANNELS, height, width)
    full = "float64" if dtype == "float64" else "float32"
    norm = nn.place(nn.BatchNorm2d(CHANNELS, EPS, MOMENTUM), "cpu", full)
    state = {"weight": uniform((CHANNELS,), full, 0.5, 2.0), "bias": uniform((CHANNELS,), full)}
    nn.load_state_arrays(norm, nn.state_arrays(norm) | state)
    nn.synchronize_batch_norm(norm)
    x = autograd.variable(uniform(shape, full, -1.0, 4.0, rank))
    factors = ops.tensor(uniform(shape, full, -2.0, 2.0, 10 + rank))
    taken = x.to(getattr(torch, dtype)).contiguous(memory_format=getattr(torch, layout))
    y = norm(taken)
    assert y.dtype == taken.dtype
    (ops.cast(y, full) * factors).sum().backward()
    leaves = {"x": x, **dict(nn.named_parameters(norm))}
    # Without images PyTorch's function gives none, which is 0.
    gradients = {
        f"by {name}": np.zeros(leaf.shape) if leaf.grad is None else ops.to_numpy(leaf.grad)
        for name, leaf in leaves.items()
    }
    return {"output": ops.to_numpy(ops.cast(y, full)), **gradients, **nn.state_arrays(norm)}


def failures() -> dict[str, str]:
    """Return by label what PyTorch's function fails of the promises that hold on a GPU."""
    found = {}
    for check in CHECKS:
        if check.name == "nn.synchronize_batch_norm" and check.label not in ELSEWHERE:
            try:
                check.run(Backend())
            except AssertionError:
                found[check.label] = traceback.format_exc()
    return found


def count_exchanges() -> list[str]:
    """Return a list that gets the name of each exchange from now on."""
    distributed = importlib.import_module("torch.distributed")
    begun: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        exchange = getattr(distributed, name)

        def count(*arguments: Any, **options: Any) -> Any:
            begun.append(name)
            return exchange(*arguments, **options)

        return count

    for name in ("all_reduce", "all_gather"):
        setattr(distributed, name, counted(name))
    return begun


def work(way: str, folder: Path, exchanges: list[str]) -> None:
    rank = this_process().rank
    exchanges.clear()
    for case in CASES:
        for layout in LAYOUTS:
            for dtype in DTYPES:
                name = f"{way} {case} {layout} {dtype} {rank}.npz"
                np.savez(folder / name, **of_layer(case, layout, dtype))  # type: ignore[arg-type]
    layers = len(CASES) * len(LAYOUTS) * len(DTYPES)
    (folder / f"{way} {rank}.txt").write_text(f"{len(exchanges) / layers} a layer")


def main(folder: Path) -> None:
    backend.use()
    backend.dist.start("cpu", TIMEOUT_S)
    exchanges = count_exchanges()
    work("ours", folder, exchanges)
    torch = importlib.import_module("torch")
    for kernel in KERNELS:
        setattr(torch, kernel.__name__, kernel)  # it has no other for a CPU
    importlib.import_module("backend.torch.nn").has_kernels_over_ranks = lambda x: True
    work("theirs", folder, exchanges)
    found = failures()
    assert not found, found
    backend.dist.stop()


if __name__ == "__main__":
    run_command(lambda: main(Path(sys.argv[1])), several=True)
