"""Distributed training for OneFlow; documented in `contract.Dist`.

OneFlow joins the processes when it is imported. Its data parallelism is not used: it averages
gradients after every backward pass instead of once after all accumulated passes.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import oneflow
from oneflow import Tensor

from duet.backend import modules
from duet.backend.checks import CPU
from duet.backend.contract import Stage
from duet.backend.oneflow import ops
from duet.backend.processes import this_process
from duet.backend.select import BackendError

FAREWELL_SECONDS = 1.0
BUCKET = 2**22  # elements sent together: 16 MiB of float32


def start(device: str, timeout_s: float) -> None:
    process = this_process()
    if process.world_size > 1 and device not in (CPU, f"cuda:{process.local_rank}"):
        raise BackendError(
            f"{device} for local rank {process.local_rank}: OneFlow requires local rank i to use "
            "cuda:i; select GPUs with CUDA_VISIBLE_DEVICES, which renumbers them from 0, and omit "
            "--device"
        )


def stop() -> None:
    if this_process().world_size == 1:
        return
    oneflow.comm.barrier()
    if this_process().is_main:  # the others abort if it exits before their barrier returns
        time.sleep(FAREWELL_SECONDS)


def sum_(x: Tensor) -> None:
    if this_process().world_size > 1:
        oneflow.comm.all_reduce(x.detach())


def broadcast_(x: Tensor) -> None:
    if this_process().world_size > 1:
        oneflow.comm.broadcast(x.detach(), 0)


def all_gather(array: np.ndarray) -> list[np.ndarray]:
    return modules.all_gather(array, this_process().world_size, _gather_equal)


def _gather_equal(array: np.ndarray) -> list[np.ndarray]:
    """Return every rank's array; all have the same shape."""
    mine = ops.tensor(array)
    found = [oneflow.zeros_like(mine) for _ in range(this_process().world_size)]
    oneflow.comm.all_gather(found, mine)
    return [ops.to_numpy(x) for x in found]


def data_parallel(module: oneflow.nn.Module) -> oneflow.nn.Module:
    return module


def averaging(
    module: oneflow.nn.Module, last: bool, stage: Stage | None = None
) -> AbstractContextManager[object]:
    if not last or this_process().world_size == 1:
        return nullcontext()
    return _averaging_after(module, stage or (lambda name: nullcontext()))


@contextmanager
def _averaging_after(module: oneflow.nn.Module, stage: Stage) -> Iterator[None]:
    yield
    with stage("backward"), oneflow.no_grad():
        for bucket in _buckets([x.grad for x in module.parameters() if x.grad is not None]):
            joined = oneflow.cat([gradient.reshape(-1) for gradient in bucket])
            oneflow.comm.all_reduce(joined)
            joined = joined / float(this_process().world_size)
            means = joined.split([gradient.numel() for gradient in bucket])
            for gradient, mean in zip(bucket, means, strict=True):
                gradient.copy_(mean.reshape(gradient.shape))


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Group consecutive gradients, which have one dtype, into buckets of about BUCKET elements."""
    ends = accumulate(gradient.numel() for gradient in gradients)
    for _, bucket in groupby(zip(ends, gradients, strict=True), lambda pair: pair[0] // BUCKET):
        yield [gradient for _, gradient in bucket]


class Together(oneflow.autograd.Function):
    """Identity whose backward pass waits for the gradients of all tensors."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.clone() for x in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return gradients


class SumOverRanks(oneflow.autograd.Function):
    """Sum over the ranks; the gradient is summed over the ranks too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        sum_(total)
        return total

    backward = forward
