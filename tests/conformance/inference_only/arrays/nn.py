"""`contract.inference.NN` on arrays; layers as they are in evaluation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from backend.arrays import ops
from numpy.lib.stride_tricks import sliding_window_view

from backend import checks


class Module:
    """Attributes that are modules or tensors, in the order in which they were set."""

    training = True

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

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

    def forward(self, x: Any) -> Any:
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
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        assert groups == 1, "the stand-in has no groups"
        register_buffer(self, "weight", zeros(out_channels, in_channels, kernel_size, kernel_size))
        if bias:
            register_buffer(self, "bias", zeros(out_channels))
        self.window = (kernel_size, stride, padding)

    def forward(self, x: Any) -> Any:
        y = np.einsum("bchwij,ocij->bohw", windows(x, *self.window), self.weight, optimize=True)
        y = np.ascontiguousarray(y).view(ops.Tensor)
        return y + self.bias.reshape(1, -1, 1, 1) if "bias" in vars(self) else y


class BatchNorm2d(Module):
    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        for name in ("weight", "bias", "running_mean", "running_var"):
            register_buffer(self, name, zeros(num_features))
        register_buffer(self, "num_batches_tracked", np.zeros((), np.int64))
        self.eps = np.float32(eps)

    def forward(self, x: Any) -> Any:
        checks.evaluates(self.training)
        factor = self.weight / np.sqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * factor
        return x * factor.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)


class MaxPool2d(Module):
    def __init__(self, kernel_size: int, stride: int, padding: int = 0) -> None:
        self.window = (kernel_size, stride, padding)

    def forward(self, x: Any) -> Any:
        return windows(x, *self.window, value=-np.inf).max((4, 5)).view(ops.Tensor)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def windows(x: Any, size: int, stride: int, padding: int, value: float = 0.0) -> np.ndarray:
    """Return the windows (B, C, H', W', size, size) of (B, C, H, W)."""
    sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded = np.pad(np.asarray(x), sides, constant_values=value)
    return sliding_window_view(padded, (size, size), (2, 3))[:, :, ::stride, ::stride]


def state(module: Module, prefix: str = "") -> dict[str, tuple[Module, str]]:
    """Return where each tensor of the state is kept, by its dotted name."""
    own = [name for name, x in vars(module).items() if isinstance(x, ops.Tensor)]
    found = {prefix + name: (module, name) for name in own}
    for name, child in module.children():
        found |= state(child, f"{prefix}{name}.")
    return found


def state_arrays(module: Module) -> dict[str, np.ndarray]:
    return {name: np.array(vars(owner)[key]) for name, (owner, key) in state(module).items()}


def load_state_arrays(module: Module, arrays: Mapping[str, np.ndarray]) -> None:
    own = state_arrays(module)
    checks.module_state({name: array.shape for name, array in own.items()}, arrays)
    for name, (owner, key) in state(module).items():
        register_buffer(owner, key, arrays[name].astype(own[name].dtype))


def register_buffer(module: Module, name: str, array: np.ndarray) -> None:
    vars(module)[name] = ops.tensor(array)


def register_parameter(module: Module, name: str, array: np.ndarray) -> None:
    register_buffer(module, name, array)


def place(module: Module, device: str, dtype: str) -> Module:
    checks.known_dtype(dtype, checks.FLOAT_DTYPES)
    for name, (owner, key) in state(module).items():
        array = state_arrays(module)[name]
        register_buffer(owner, key, array.astype(dtype) if array.dtype.kind == "f" else array)
    return module


def frozen_copy(module: Module) -> Module:
    return copy.deepcopy(module).eval()


def to_torchscript(module: Module, example: Any, text: str) -> bytes:
    raise checks.no_torchscript()


def from_torchscript(content: bytes) -> Callable[[Any], Any]:
    raise checks.no_torchscript()
