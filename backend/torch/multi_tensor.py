"""Updates of many tensors together under PyTorch; see `contract.MultiTensor`.

By PyTorch's fused optimizers and lists of tensors: a launch or a few on a GPU, one pass over the
memory on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from backend import checks
from backend.torch import optim


class Fused(optim.NamedState):
    """What the fused kernels need: all tensors of a parameter in one order of memory."""

    FUSED = True

    def zero_grad(self) -> None:
        gradients = [x.grad for x in self._parameters.values() if x.grad is not None]
        if gradients:
            torch._foreach_zero_(gradients)

    def _gradients(self, trained: Mapping[str, Tensor]) -> list[Tensor]:
        return [_ordered_like(x, x.grad) for x in trained.values()]

    def _states(self, kind: str, trained: Mapping[str, Tensor]) -> list[Tensor]:
        """The parameters' states of one kind, zero before the first gradient."""
        states = self._state[kind]
        for name, x in trained.items():
            states[name] = _ordered_like(x, states[name]) if name in states else torch.zeros_like(x)
        return [states[name] for name in trained]


class SGD(Fused, optim.SGD):
    """PyTorch's fused SGD with Nesterov momentum and named state."""

    def _buffers(self, trained: Mapping[str, Tensor], momentum: float) -> list[Tensor | None]:
        # Zeros give the same first step, also where some parameters have their first one later.
        return [*self._states("momentum", trained)] if momentum != 0 else [None] * len(trained)


class Adam(Fused, optim.Adam):
    """PyTorch's fused Adam with named state; beta1 is the momentum of the step."""

    def _shrink(self, trained: Mapping[str, Tensor], factor: float) -> None:
        if trained:
            torch._foreach_mul_(list(trained.values()), factor)

    def _infinity(self, trained: Mapping[str, Tensor]) -> Tensor:
        device = next((x.device for x in trained.values()), None)
        return torch.full((), math.inf, device=device)

    def _moments(self, kind: str, trained: Mapping[str, Tensor]) -> list[Tensor]:
        return self._states(kind, trained)


class AdamW(Adam):
    """Fused Adam with decoupled weight decay."""

    DECOUPLED = True


def ema_update_(averages: Sequence[Tensor], values: Sequence[Tensor], decay: float) -> None:
    checks.equal_counts(len(values), len(averages), "values")
    if averages:
        with torch.no_grad():
            torch._foreach_lerp_(list(averages), list(values), 1.0 - decay)


def describe(optimizer: str, device: str) -> str:
    where = "CPU" if device == checks.CPU else device
    return f"PyTorch's fused {optimizer} and its list of averages, on the {where}"


def _ordered_like(x: Tensor, y: Tensor) -> Tensor:
    """y, or a copy of it, in x's order of memory: the kernels on a CPU read memory in order."""
    if y.stride() == x.stride() or _order(y) == _order(x):
        return y
    return torch.empty_like(x).copy_(y)


def _order(x: Tensor) -> list[int]:
    """The strides that matter: those of dimensions with more than one element."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]
