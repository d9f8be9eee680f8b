"""Several processes under PyTorch; `contract.Dist` says what each function promises."""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from duet.backend import modules
from duet.backend.checks import CPU
from duet.backend.contract import Stage
from duet.backend.processes import MEETING_FOLDER, this_process
from duet.backend.torch import ops

OF_ONE_ELEMENT = (
    r"Grad strides do not match bucket view strides[\s\S]*grad\.sizes\(\) = \[\d+, \d+, 1, 1\]"
)


def start(device: str, timeout_s: float) -> None:
    if this_process().world_size == 1:
        return
    # gloo sends arrays of the host, NCCL sends tensors on a GPU.
    engines = "gloo" if device == CPU else "cpu:gloo,cuda:nccl"
    if device != CPU:
        torch.cuda.set_device(device)
    distributed.init_process_group(
        engines,
        store=_private_store(),
        rank=this_process().rank,
        world_size=this_process().world_size,
        timeout=timedelta(seconds=timeout_s),
        # NCCL then connects the ranks here, and never guesses the device of one.
        device_id=None if device == CPU else torch.device(device),
    )


def _private_store() -> distributed.Store | None:
    """Return the store of ranks that `local_ranks.py` started; None for that at MASTER_ADDR.

    A store at an address would listen on all interfaces and has no password.
    """
    folder = os.environ.get(MEETING_FOLDER)
    return distributed.FileStore(f"{folder}/store", this_process().world_size) if folder else None


def stop() -> None:
    if distributed.is_initialized():
        # On the CPU: `barrier` would start NCCL where it was not used, on a guessed device.
        distributed.all_reduce(torch.zeros(1))
        distributed.destroy_process_group()


def sum_(x: Tensor) -> None:
    if this_process().world_size > 1:
        distributed.all_reduce(x.detach())


def broadcast_(x: Tensor) -> None:
    if this_process().world_size > 1:
        distributed.broadcast(x.detach(), 0)


def all_gather(array: np.ndarray) -> list[np.ndarray]:
    return modules.all_gather(array, this_process().world_size, _gather_equal)


def _gather_equal(array: np.ndarray) -> list[np.ndarray]:
    """Return the arrays of all ranks, which have one shape."""
    mine = ops.tensor(array)
    found = [torch.empty_like(mine) for _ in range(this_process().world_size)]
    distributed.all_gather(found, mine)
    return [ops.to_numpy(x) for x in found]


def data_parallel(module: torch.nn.Module, half_gradients: bool = False) -> torch.nn.Module:
    trained = any(parameter.requires_grad for parameter in module.parameters())
    if this_process().world_size == 1 or not trained:
        return module
    # PyTorch warns of gradients laid out otherwise than weights, also of those of 1x1 convolutions,
    # where only strides of axes of one element differ, which say nothing.
    warnings.filterwarnings("ignore", OF_ONE_ELEMENT)
    parallel = DistributedDataParallel(module)
    # Not an argument: 2.13 renamed it, and warns of the name that versions before have.
    parallel.broadcast_buffers = False
    if half_gradients:
        parallel.register_comm_hook(None, _average_in_half)
    return parallel


# Without annotations: PyTorch compares them with its own types, and these would be strings.
def _average_in_half(_, bucket):
    """Average as PyTorch's own `bf16_compress_hook` does, which refuses a CPU."""
    half = bucket.buffer().to(torch.bfloat16).div_(this_process().world_size)
    work = distributed.all_reduce(half, async_op=True)
    assert work is not None
    return work.get_future().then(lambda sums: bucket.buffer().copy_(sums.value()[0]))


def averaging(
    module: torch.nn.Module, last: bool, stage: Stage | None = None
) -> AbstractContextManager[Any]:
    if last or not isinstance(module, DistributedDataParallel):
        return nullcontext()
    return module.no_sync()


class SumOverRanks(torch.autograd.Function):
    """The sum over the ranks, whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        sum_(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        sum_(total)
        return total
