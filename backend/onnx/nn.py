"""Layers and module functions for graphs; layers behave as in evaluation mode."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from duet.backend import checks, modules
from duet.backend.onnx import ops
from duet.backend.onnx.device import resolve
from duet.backend.onnx.recording import FLOAT_DTYPES, Tensor, apply, compute_together, constant

to_torchscript = modules.to_torchscript
from_torchscript = modules.from_torchscript


class Module:
    """Container of modules and tensors, in the order the attributes were set."""

    training = True

    def __call__(self, *inputs: object) -> Any:
        output = self.forward(*inputs)
        if isinstance(output, tuple):
            compute_together([x for x in output if isinstance(x, Tensor)])
        return output

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def modules(self) -> Iterator[Module]:
        yield self
        for _, child in self.children():
            yield from child.modules()

    def children(self) -> list[tuple[str, Module]]:
        return [(name, x) for name, x in vars(self).items() if isinstance(x, Module)]

    def train(self, mode: bool = True) -> Module:
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)


class ModuleList(Module):
    def __init__(self, modules: Iterable[Module] = ()) -> None:
        vars(self).update((str(index), module) for index, module in enumerate(modules))

    def __iter__(self) -> Iterator[Module]:
        return (child for _, child in self.children())

    def __len__(self) -> int:
        return len(self.children())

    def __getitem__(self, index: int) -> Module:
        return list(self)[index]


class Sequential(ModuleList):
    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: object) -> Any:
        for module in self:
            x = module(x)
        return x


class Conv2d(Module):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        *,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        shape = out_channels, in_channels // groups, kernel_size, kernel_size
        register_parameter(self, "weight", np.zeros(shape, np.float32))
        if bias:
            register_parameter(self, "bias", np.zeros(out_channels, np.float32))
        self.window = (kernel_size, stride, padding)
        self.in_channels, self.groups = in_channels, groups

    def forward(self, x: Tensor) -> Tensor:
        checks.feature_map(x.shape, x.dtype, self.in_channels, self.weight.dtype)
        bias = vars(self).get("bias")
        inputs = (x, self.weight) if bias is None else (x, self.weight, bias)
        shape = x.shape[0], self.weight.shape[0], *windows(x, *self.window)
        return apply("Conv", inputs, shape, x.dtype, group=self.groups, **attributes(*self.window))


class BatchNorm2d(Module):
    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        for name, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
            register_parameter(self, name, np.full(num_features, value, np.float32))
        register_buffer(self, "num_batches_tracked", np.zeros((), np.int64))
        self.eps = checks.as_float32(eps)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise ValueError("BatchNorm cannot train on an inference-only backend; call eval()")
        checks.feature_map(x.shape, x.dtype, self.weight.shape[0], self.weight.dtype)
        own = self.weight, self.bias, self.running_mean, self.running_var
        return apply("BatchNormalization", (x, *own), x.shape, x.dtype, epsilon=self.eps)


class MaxPool2d(Module):
    def __init__(self, kernel_size: int, stride: int, padding: int = 0) -> None:
        self.window = (kernel_size, stride, padding)

    def forward(self, x: Tensor) -> Tensor:
        shape = *x.shape[:2], *windows(x, *self.window)
        return apply("MaxPool", (x,), shape, x.dtype, **attributes(*self.window))


def windows(x: Tensor, size: int, stride: int, padding: int) -> tuple[int, int]:
    checks.window_fits(x.shape, size, padding)
    height, width = ((side + (2 * padding - size)) // stride + 1 for side in x.shape[2:])
    return height, width


def attributes(size: int, stride: int, padding: int) -> dict[str, list[int]]:
    return {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [padding] * 4}


def state(module: Module, prefix: str = "") -> dict[str, tuple[Module, str]]:
    own = [name for name, x in vars(module).items() if isinstance(x, Tensor)]
    found = {prefix + name: (module, name) for name in own}
    for name, child in module.children():
        found |= state(child, f"{prefix}{name}.")
    return found


def name_tensors(module: Module) -> None:
    """Give the state tensors their names in weights files."""
    for name, (owner, key) in state(module).items():
        vars(owner)[key].name = name


def state_arrays(module: Module) -> dict[str, np.ndarray]:
    return {name: ops.to_numpy(vars(owner)[key]) for name, (owner, key) in state(module).items()}


def load_state_arrays(module: Module, arrays: Mapping[str, np.ndarray]) -> None:
    places = state(module)
    own = {name: vars(owner)[key] for name, (owner, key) in places.items()}
    checks.module_state({name: x.shape for name, x in own.items()}, arrays)
    for name, (owner, key) in places.items():
        _replace(owner, key, arrays[name].astype(own[name].dtype))


def _replace(module: Module, key: str, array: np.ndarray) -> None:
    name = vars(module)[key].name
    register_buffer(module, key, array)
    vars(module)[key].name = name


def register_buffer(module: Module, name: str, array: np.ndarray) -> None:
    vars(module)[name] = constant(array)


def register_parameter(module: Module, name: str, array: np.ndarray) -> None:
    register_buffer(module, name, array)


def place(module: Module, device: str, dtype: str) -> Module:
    resolve(device)
    checks.known_dtype(dtype, FLOAT_DTYPES)
    for owner, key in state(module).values():
        array = vars(owner)[key].array
        if array.dtype.kind == "f":
            _replace(owner, key, array.astype(dtype))
    return module


def frozen_copy(module: Module) -> Module:
    return copy.deepcopy(module).eval()
