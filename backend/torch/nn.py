"""Layers and module functions for PyTorch; documented in `contract.NN`."""

import copy
import io
import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.nn import Module, functional
from torch.nn.modules import _functions

from duet.backend import checks, modules, updates
from duet.backend.processes import this_process
from duet.backend.torch import dist, ops
from duet.backend.torch.device import present

ALIGNMENT = 16  # elements: 64 bytes of float32
HUGE_PAGE = 2 << 20  # bytes
TORCHSCRIPT_TEXT = "metadata.json"

ModuleList = torch.nn.ModuleList
Sequential = torch.nn.Sequential
MaxPool2d = torch.nn.MaxPool2d
named_parameters = modules.named_parameters
state_tensors = modules.state_tensors
state_arrays = modules.state_arrays
load_state_arrays = modules.load_state_arrays
register_buffer = modules.register_buffer
float_tensors = updates.float_tensors
set_trainable = modules.set_trainable
synchronize_batch_norm = modules.synchronize_batch_norm


# Whatever the caller has chosen with `torch.set_default_device` and `set_default_dtype`.
FLOAT32_ON_CPU: dict[str, Any] = {"device": checks.CPU, "dtype": torch.float32}


class Conv2d(torch.nn.Conv2d):
    """`torch.nn.Conv2d` that draws nothing from the caller's generator: weights are loaded."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1,
        padding: int = 0, *, groups: int = 1, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, groups=groups, bias=bias,
            **FLOAT32_ON_CPU,
        )  # fmt: skip

    def reset_parameters(self) -> None:
        modules.set_to_zero(self.parameters())


class BatchNorm2d(torch.nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` with the contract's arguments."""

    over_ranks = False  # whether statistics are computed over all ranks
    # Never None here, unlike in PyTorch's class.
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        options = checks.as_float32(eps), checks.as_float32(momentum)
        super().__init__(num_features, *options, **FLOAT32_ON_CPU)
        self._uncounted = 0  # batches not yet added to `num_batches_tracked`

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.over_ranks:
            return self._normalize_over_ranks(x)
        if self.training:
            checks.several_values(x.shape)
        if self.training and x.shape[0] == 0:  # PyTorch would make the running statistics NaN
            return x * self.weight.reshape(1, -1, 1, 1) + self.bias.reshape(1, -1, 1, 1)
        if self.training:
            self.count_batch()
        return functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training,
            self.momentum, self.eps,
        )  # fmt: skip

    def count_batch(self) -> None:
        """Count a training batch in `num_batches_tracked`."""
        # Counted on the host to save a launch per layer for a number that no computation uses.
        # Compiled code counts on the device: a host counter would trigger recompilation.
        if torch.compiler.is_compiling():
            self.num_batches_tracked.add_(1)
        else:
            self._uncounted += 1

    def _save_to_state_dict(self, *arguments: object) -> None:
        if self._uncounted:
            self.num_batches_tracked.add_(self._uncounted)
            self._uncounted = 0
        super()._save_to_state_dict(*arguments)  # type: ignore[no-untyped-call]

    def _normalize_over_ranks(self, x: Tensor) -> Tensor:
        if has_kernels_over_ranks(x):
            return self._normalize_by_kernels(x)
        full = x.to(self.weight.dtype)  # half precision would not hold the sums
        y, mean, variance = modules.normalize(full, self, dist.SumOverRanks.apply)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance, self.momentum)
        self.count_batch()
        return y.to(x.dtype)

    def _normalize_by_kernels(self, x: Tensor) -> Tensor:
        # An empty rank sends zeros in the dtype of x, whose size the other ranks do not expect.
        sent = x if len(x) else x.to(self.weight.dtype)
        y = _OverRanks.apply(
            sent, self.weight, self.bias, self.running_mean, self.running_var, self.eps,
            self.momentum, None, this_process().world_size,
        )  # fmt: skip
        self.count_batch()
        return y.to(x.dtype)


class _OverRanks(_functions.SyncBatchNorm):
    """PyTorch's SyncBatchNorm, in which the host need not wait to leave out empty ranks."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, running_mean: Tensor,
        running_var: Tensor, eps: float, momentum: float, group: Any, world_size: int,
    ) -> Tensor:  # fmt: skip
        if not x.is_contiguous(memory_format=torch.channels_last):
            x = x.contiguous()
        if len(x):
            found = torch.batch_norm_stats(x, eps)
        else:  # finite, so that a count of 0 gives them no weight; rank 0 is never the empty one
            found = torch.zeros_like(weight), torch.ones_like(weight)
        mine = torch.cat([*found, weight.new_full((1,), x.numel() // len(weight))])
        ranks = mine.new_empty(world_size * len(mine))  # flat, as gloo divides the first axis
        # Newer versions warn about the name that older ones have.
        gather = getattr(distributed, "all_gather_single", None)
        (gather or distributed.all_gather_into_tensor)(ranks, mine)
        means, deviations, counts = ranks.reshape(world_size, -1).split(len(weight), dim=1)
        counts = counts.reshape(-1)
        mean, deviation = torch.batch_norm_gather_stats_with_counts(
            x, means, deviations, running_mean, running_var, momentum, eps, counts
        )
        ctx.save_for_backward(x, weight, mean, deviation, counts.to(torch.int32))
        ctx.process_group = group
        if len(x):
            return torch.batch_norm_elemt(x, weight, bias, mean, deviation, eps)
        return torch.empty_like(x)


def has_kernels_over_ranks(x: Tensor) -> bool:
    """Return whether PyTorch's SyncBatchNorm kernels, which are for GPUs, support a map."""
    return x.is_cuda and this_process().world_size > 1


def register_parameter(module: Module, name: str, array: np.ndarray) -> None:
    module.register_parameter(name, torch.nn.Parameter(ops.tensor(array)))


def place(module: Module, device: str, dtype: str) -> Module:
    checks.known_dtype(dtype, checks.FLOAT_DTYPES)
    updates.OfMemory.moved += 1
    return module.to(present(device), ops.dtype_named(dtype))


def pack(module: Module) -> None:
    tensors = list({id(x): x for x in float_tensors(module)()}.values())
    if len({(x.dtype, x.device) for x in tensors}) != 1:
        return
    # Odd sizes come last to keep the others aligned to 64 bytes.
    tensors.sort(key=lambda x: x.numel() % ALIGNMENT != 0)
    packed = _memory(tensors[0], sum(x.numel() for x in tensors))
    start = 0
    for x in tensors:
        strides = torch.empty_like(x, device="meta").stride()  # without gaps
        x.data = packed.as_strided(x.shape, strides, start).copy_(x.detach())
        start += x.numel()
    updates.OfMemory.moved += 1


def lay_channels_last(module: Module) -> None:
    updates.OfMemory.moved += 1
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def frozen_copy(module: Module) -> Module:
    return copy.deepcopy(module).eval().requires_grad_(False)


def to_torchscript(module: Module, example: Tensor, text: str) -> bytes:
    file = io.BytesIO()
    # They are about constants in a trace, and the deprecation of TorchScript.
    with modules.warnings_ignored(), torch.no_grad():
        traced = torch.jit.freeze(torch.jit.trace(module, example, check_trace=False))
        torch.jit.save(traced, file, _extra_files={TORCHSCRIPT_TEXT: text.encode()})
    return file.getvalue()


def from_torchscript(content: bytes) -> Callable[[Tensor], object]:
    try:
        with modules.warnings_ignored():
            return torch.no_grad()(torch.jit.load(io.BytesIO(content), checks.CPU))
    except RuntimeError as error:
        raise ValueError(f"PyTorch cannot read the file as TorchScript: {error}") from error


def _memory(like: Tensor, count: int) -> Tensor:
    """Allocate `count` elements, on Linux in huge pages: up to 1.3 times as fast to read."""
    size = count * like.element_size()
    if like.device.type != checks.CPU or size < HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return like.new_empty(count)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=like.dtype)
