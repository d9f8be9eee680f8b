"""Layers and functions of modules under PyTorch; `contract.NN` says what each one promises."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from backend import checks
from backend.torch import ops
from backend.torch.device import resolve

Module = torch.nn.Module
ModuleList = torch.nn.ModuleList
Sequential = torch.nn.Sequential


class Conv2d(torch.nn.Conv2d):
    """`torch.nn.Conv2d` with the arguments of the contract."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, groups=groups, bias=bias
        )


class BatchNorm2d(torch.nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` with the arguments of the contract."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, checks.as_float32(eps), checks.as_float32(momentum))


class MaxPool2d(torch.nn.MaxPool2d):
    """`torch.nn.MaxPool2d` with the arguments of the contract."""

    def __init__(self, kernel_size: int, stride: int, padding: int = 0) -> None:
        super().__init__(kernel_size, stride, padding)


def named_parameters(module: Module) -> Iterator[tuple[str, Tensor]]:
    return module.named_parameters()


def state_tensors(module: Module) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in module.state_dict().items()}


def float_tensors(module: Module) -> Callable[[], list[Tensor]]:
    places = [
        (kept, name)
        for part in module.modules()
        for kept in (part._parameters, part._buffers)
        for name, x in kept.items()
        if x is not None and x.is_floating_point() and name not in part._non_persistent_buffers_set
    ]
    return lambda: [kept[name] for kept, name in places]


def state_arrays(module: Module) -> dict[str, np.ndarray]:
    return {name: ops.to_numpy(value) for name, value in state_tensors(module).items()}


def load_state_arrays(module: Module, arrays: Mapping[str, np.ndarray]) -> None:
    state = state_tensors(module)
    checks.module_state({name: value.shape for name, value in state.items()}, arrays)
    with torch.no_grad():
        for name, value in state.items():
            value.copy_(ops.tensor(arrays[name].astype(ops.dtype_of(value))))


def register_buffer(module: Module, name: str, array: np.ndarray) -> None:
    module.register_buffer(name, ops.tensor(array))


def place(module: Module, device: str, dtype: str) -> Module:
    checks.known_dtype(dtype, checks.FLOAT_DTYPES)
    return module.to(resolve(device), ops.dtype_named(dtype))


def set_trainable(parameters: Iterable[Tensor], trainable: bool) -> None:
    for parameter in parameters:
        parameter.requires_grad = trainable
        if not trainable:
            parameter.grad = None


def frozen_copy(module: Module) -> Module:
    return copy.deepcopy(module).eval().requires_grad_(False)
