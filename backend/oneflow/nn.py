"""Layers and module functions for OneFlow; documented in `contract.NN`."""

import copy
import warnings
from typing import Any

import numpy as np
import oneflow
from oneflow import Tensor
from oneflow.nn import Module

from duet.backend import checks, modules, updates
from duet.backend.oneflow import dist, ops
from duet.backend.oneflow.device import present

ModuleList = oneflow.nn.ModuleList
Sequential = oneflow.nn.Sequential
MaxPool2d = oneflow.nn.MaxPool2d
named_parameters = modules.named_parameters
state_tensors = modules.state_tensors
state_arrays = modules.state_arrays
load_state_arrays = modules.load_state_arrays
register_buffer = modules.register_buffer
to_torchscript = modules.to_torchscript
from_torchscript = modules.from_torchscript
float_tensors = updates.float_tensors
set_trainable = modules.set_trainable


class Conv2d(oneflow.nn.Conv2d):
    """`oneflow.nn.Conv2d`, on a CPU with 1x1 as a matrix product.

    It draws nothing from the caller's generator: weights are loaded.
    """

    def reset_parameters(self) -> None:
        modules.set_to_zero(self.parameters())

    def forward(self, x: Tensor) -> Tensor:
        # OneFlow aborts the process for mixed dtypes and for empty matrix products.
        checks.one_dtype(map(ops.dtype_of, (x, self.weight)))
        if x.is_cuda or x.numel() == 0:
            return super().forward(x)
        # On a CPU the matrix product is more than twice as fast as OneFlow's convolution.
        arguments = self.kernel_size, self.stride, self.padding, self.groups
        pointwise = arguments == ((1, 1), (1, 1), (0, 0), 1)
        y = self._as_matrix_product(x) if pointwise else self._conv_forward(x, self.weight, None)
        if self.bias is None:
            return y
        # Only this way of adding a bias has a fast kernel: 0.4 ms instead of 110 ms, which the
        # convolution's own bias takes too, for 16 x 320 x 320 elements.
        return y + self.bias.reshape(1, self.out_channels, 1, 1)

    def _as_matrix_product(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        weight = self.weight.reshape(self.out_channels, self.in_channels)
        y = oneflow.matmul(weight, x.reshape(batch, channels, height * width))
        return y.reshape(batch, self.out_channels, height, width)


class BatchNorm2d(oneflow.nn.BatchNorm2d):
    """`oneflow.nn.BatchNorm2d` with the contract's arguments and accurate training statistics.

    OneFlow's CPU kernel computes the variance as E[x²] - E[x]², which loses precision if the mean
    is large. So the batch mean is subtracted first, which changes neither output nor gradient, and
    added to the running mean afterwards.
    """

    over_ranks = False  # whether statistics are computed over all ranks

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, checks.as_float32(eps), checks.as_float32(momentum))

    def forward(self, x: Tensor) -> Tensor:
        checks.one_dtype(map(ops.dtype_of, (x, self.weight)))
        if not self.training:
            return super().forward(x)
        if self.over_ranks:
            return self._normalize_over_ranks(x)
        checks.several_values(x.shape)  # OneFlow would make the running variance NaN
        if x.shape[0] == 0:
            return x * self.weight.reshape(1, -1, 1, 1) + self.bias.reshape(1, -1, 1, 1)
        shift = x.detach().mean((0, 2, 3), keepdim=True)
        y = super().forward(x - shift)
        self.running_mean.add_(shift.reshape(-1) * self.momentum)
        return y

    def _normalize_over_ranks(self, x: Tensor) -> Tensor:
        y, mean, variance = modules.normalize(x, self, dist.SumOverRanks.apply)
        self.running_mean.add_((mean - self.running_mean) * self.momentum)
        self.running_var.add_((variance - self.running_var) * self.momentum)
        self.num_batches_tracked.add_(1)
        return y


def register_parameter(module: Module, name: str, array: np.ndarray) -> None:
    module.register_parameter(name, oneflow.nn.Parameter(ops.tensor(array)))


def place(module: Module, device: str, dtype: str) -> Module:
    checks.known_dtype(dtype, checks.FLOAT_DTYPES)
    updates.OfMemory.moved += 1
    return module.to(present(device), ops.dtype_named(dtype))


def pack(module: Module) -> None:
    """Do nothing: NumPy updates the EMA in cache-sized pieces, wherever they are."""


def lay_channels_last(module: Module) -> None:
    raise ValueError("OneFlow 0.9 has no channels_last layout; accepted: weights as they are")


def synchronize_batch_norm(module: Module) -> None:
    modules.synchronize_batch_norm(module)
    module.register_forward_hook(_in_one_order)


def _in_one_order(module: Module, inputs: Any, outputs: Any) -> object:
    """Make the backward pass traverse the module in the same order on every rank.

    OneFlow runs what is ready first, and on a rank without objects the losses of several outputs
    become ready in a different order. BatchNorm would then mix up the statistics of two layers.
    """
    several = isinstance(outputs, tuple) and len(outputs) > 1
    return dist.Together.apply(*outputs) if several and module.training else outputs


def frozen_copy(module: Module) -> Module:
    # OneFlow's deepcopy takes each tensor through NumPy, which takes milliseconds.
    copies: dict[int, Any] = {id(x): x.detach().clone() for x in module.buffers()}
    copies |= {id(x): oneflow.nn.Parameter(x.detach().clone(), False) for x in module.parameters()}
    with warnings.catch_warnings():
        # Caused by the `_in_one_order` hook, which an untrained copy does not need.
        warnings.filterwarnings("ignore", "The module hooks will not be remained")
        copied = copy.deepcopy(module, copies)
    return copied.eval()
