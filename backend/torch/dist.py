"""Distributed training for PyTorch; documented in `contract.Dist`."""

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
from duet.backend.processes import MEETING_FOLDER, local_world_size, this_process
from duet.backend.torch import ops

POINTWISE_STRIDES = (
    r"Grad strides do not match bucket view strides[\s\S]*grad\.sizes\(\) = \[\d+, \d+, 1, 1\]"
)

_ended: list[object] = []  # process groups


def start(device: str, timeout_s: float) -> None:
    if this_process().world_size == 1:
        return
    # gloo sends host arrays, NCCL sends GPU tensors: gloo both where NCCL is absent, as on Windows.
    uses_nccl = device != CPU and distributed.is_nccl_available()
    engines = "cpu:gloo,cuda:nccl" if uses_nccl else "gloo"
    if device != CPU:
        torch.cuda.set_device(device)
    distributed.init_process_group(
        engines,
        store=_store(),
        rank=this_process().rank,
        world_size=this_process().world_size,
        timeout=timedelta(seconds=timeout_s),
        # Makes NCCL connect the ranks here, without guessing their devices.
        device_id=torch.device(device) if uses_nccl else None,
    )


def _store() -> "distributed.Store | None":  # builds without distributed training lack it
    """Return the store in which the ranks meet; None for PyTorch's at MASTER_ADDR.

    A TCP store would listen on all interfaces without a password: ranks started by `launch.py` use
    a file. That of `torchrun --max-restarts` outlives a killed rank, whose address the next attempt
    must not find. Attempts are counted per machine, so only those of a single one have numbers.
    """
    if folder := os.environ.get(MEETING_FOLDER):
        return distributed.FileStore(f"{folder}/store", this_process().world_size)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or local_world_size() < this_process().world_size:
        return None
    store, _, _ = next(distributed.rendezvous("env://"))
    return distributed.PrefixStore(f"attempt-{attempt}", store)


def stop() -> None:
    if distributed.is_initialized():
        # On the CPU: `barrier` would start an unused NCCL on a guessed device.
        distributed.all_reduce(torch.zeros(1))
        # Kept: gloo's destructor joins a thread that may be waiting for the interpreter, and DDP,
        # its last owner, would call it while holding the interpreter.
        _ended.append(distributed.group.WORLD)
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
    """Return every rank's array; all have the same shape."""
    mine = ops.tensor(array)
    found = [torch.empty_like(mine) for _ in range(this_process().world_size)]
    distributed.all_gather(found, mine)
    return [ops.to_numpy(x) for x in found]


def data_parallel(module: torch.nn.Module) -> torch.nn.Module:
    trained = any(parameter.requires_grad for parameter in module.parameters())
    if this_process().world_size == 1 or not trained:
        return module
    # PyTorch warns if gradients and weights differ in layout, even for 1x1 convolutions, where only
    # the meaningless strides of size-1 axes differ.
    warnings.filterwarnings("ignore", POINTWISE_STRIDES)
    # Gradients are views into what is sent: a copy of all of them less in each step.
    parallel = DistributedDataParallel(module, gradient_as_bucket_view=True)
    # Not passed as an argument: 2.13 renamed it and warns about the old name.
    parallel.broadcast_buffers = False
    return parallel


def averaging(
    module: torch.nn.Module, last: bool, stage: Stage | None = None
) -> AbstractContextManager[object]:
    if last or not isinstance(module, DistributedDataParallel):
        return nullcontext()
    return module.no_sync()


class SumOverRanks(torch.autograd.Function):
    """Sum over the ranks; the gradient is summed over the ranks too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        sum_(total)
        return total

    backward = forward
