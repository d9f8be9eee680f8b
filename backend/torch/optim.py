"""Optimizers for PyTorch; documented in `contract.Optim`.

They use PyTorch's functional forms: the first `torch.optim.SGD` of a process takes a second to
import the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from duet.backend import checks, modules
from duet.backend.modules import MOMENTS, AdamConstants, adam_constants
from duet.backend.torch import ops


class NamedState(modules.NamedState):
    """Groups of named parameters, with their state tensors by kind."""

    # True: kernels that read `lost` on the device and need all tensors of a parameter in the same
    # memory order. None: PyTorch's choice.
    FUSED: bool | None = None

    def __init__(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> None:
        self._groups = [(dict(group), checks.as_float32(decay)) for group, decay in groups]
        self.parameters = {name: x for group, _ in self._groups for name, x in group.items()}
        self._state: dict[str, dict[str, Tensor]] = {kind: {} for kind in self.kinds}

    def zero_grad(self) -> None:
        # None makes the next backward pass assign gradients instead of adding to zeros.
        for x in self.parameters.values():
            x.grad = None

    def kept_arrays(self) -> dict[str, np.ndarray]:
        return {
            f"{name}.{kind}": ops.to_numpy(state)
            for kind, states in self._state.items()
            for name, state in states.items()
        }

    def keep_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._state = {
            kind: {
                name: torch.empty_like(x).copy_(ops.tensor(arrays[f"{name}.{kind}"]))
                for name, x in self.parameters.items()
                if f"{name}.{kind}" in arrays
            }
            for kind in self.kinds
        }

    def _is_left_out(self, lost: Tensor | None) -> bool:
        """Return whether the host skips a step: plain kernels do not read `lost`."""
        return not self.FUSED and lost is not None and ops.reads_at_once(lost) and bool(lost.item())

    @contextmanager
    def _undoing(self, lost: Tensor | None, changed: Sequence[Tensor | None]) -> Iterator[None]:
        """Undo the changes of plain kernels on a GPU if `lost` is 1; the host does not read it."""
        tensors = [x for x in changed if x is not None]
        if self.FUSED or lost is None or ops.reads_at_once(lost) or not tensors:
            yield
            return
        before = torch._foreach_mul(tensors, 1.0)
        yield
        is_lost, pairs = lost > 0.0, zip(before, tensors, strict=True)
        torch._foreach_copy_(tensors, [torch.where(is_lost, *pair) for pair in pairs])

    def _gradients(self, trained: Mapping[str, Tensor]) -> list[Tensor]:
        return [self._ordered(x, grad) for x in trained.values() if (grad := x.grad) is not None]

    def _states(self, kind: str, trained: Mapping[str, Tensor]) -> list[Tensor]:
        """Return one kind of state for the parameters, zeros before the first gradient."""
        states = self._state[kind]
        for name, x in trained.items():
            states[name] = self._ordered(x, states[name]) if name in states else torch.zeros_like(x)
        return [states[name] for name in trained]

    def _ordered(self, x: Tensor, y: Tensor) -> Tensor:
        return ordered_like(x, y) if self.FUSED else y


class SGD(NamedState):
    """PyTorch's SGD with Nesterov momentum and named state."""

    kinds = ("momentum",)

    def step(
        self, learning_rates: Sequence[float], momentum: float, lost: Tensor | None = None
    ) -> None:
        checks.equal_counts(len(learning_rates), len(self._groups), "learning rates")
        if self._is_left_out(lost):
            return
        with torch.no_grad():
            for (group, decay), learning_rate in zip(self._groups, learning_rates, strict=True):
                self._step_group(_with_gradient(group), decay, learning_rate, momentum, lost)

    def _step_group(
        self,
        trained: Mapping[str, Tensor],
        decay: float,
        learning_rate: float,
        momentum: float,
        lost: Tensor | None,
    ) -> None:
        buffers = self._buffers(trained, momentum, lost)
        with self._undoing(lost, [*trained.values(), *buffers]):
            sgd(
                list(trained.values()),
                self._gradients(trained),
                buffers,
                fused=self.FUSED,
                found_inf=lost if self.FUSED else None,
                weight_decay=decay,
                momentum=checks.as_float32(momentum),
                lr=checks.as_float32(learning_rate),
                dampening=0.0,
                nesterov=momentum != 0,
                maximize=False,
            )
        if momentum != 0:
            filled = zip(trained, buffers, strict=True)
            self._state["momentum"].update((n, x) for n, x in filled if x is not None)

    def _buffers(
        self, trained: Mapping[str, Tensor], momentum: float, lost: Tensor | None
    ) -> list[Tensor | None]:
        """Return each momentum buffer; None for plain kernels of a CPU before the first step."""
        skips = self.FUSED or not (lost is None or ops.reads_at_once(lost))
        if skips and momentum != 0:  # zeros result in the same first step
            return [*self._states("momentum", trained)]
        return [None if self.FUSED else self._state["momentum"].get(name) for name in trained]


class Adam(NamedState):
    """PyTorch's Adam with named state; beta1 is the step's momentum."""

    kinds = MOMENTS
    updates: int = 0
    DECOUPLED = False  # apply decay to the weights instead of the gradient

    def step(
        self, learning_rates: Sequence[float], momentum: float, lost: Tensor | None = None
    ) -> None:
        checks.equal_counts(len(learning_rates), len(self._groups), "learning rates")
        constants = [adam_constants(rate, momentum, self.updates + 1) for rate in learning_rates]
        self.updates += 1
        if self._is_left_out(lost):
            return
        with torch.no_grad():
            for (group, decay), learning_rate, group_constants in zip(
                self._groups, learning_rates, constants, strict=True
            ):
                trained = _with_gradient(group)
                moments = [self._states(kind, trained) for kind in MOMENTS]
                with self._undoing(lost, [*trained.values(), *chain(*moments)]):
                    if self.DECOUPLED:
                        self._shrink(trained, 1 - checks.as_float32(learning_rate) * decay, lost)
                    kept = 0.0 if self.DECOUPLED else decay
                    self._step_group(trained, kept, group_constants, moments, lost)

    def _step_group(
        self,
        trained: Mapping[str, Tensor],
        decay: float,
        constants: AdamConstants,
        moments: Sequence[list[Tensor]],  # first and second
        lost: Tensor | None,
    ) -> None:
        first, second = moments
        adam(
            list(trained.values()),
            self._gradients(trained),
            first,
            second,
            [],
            # At step infinity PyTorch corrects no bias: rate and epsilon already do.
            [self._infinity(trained)] * len(trained),
            amsgrad=False,
            fused=self.FUSED,
            found_inf=lost if self.FUSED else None,
            beta1=constants.beta1,
            beta2=constants.beta2,
            lr=constants.rate,
            weight_decay=decay,
            eps=constants.epsilon,
            maximize=False,
        )

    def _shrink(self, trained: Mapping[str, Tensor], factor: float, lost: Tensor | None) -> None:
        for x in trained.values():
            x.mul_(factor)

    def _infinity(self, trained: Mapping[str, Tensor]) -> Tensor:
        # On the CPU, so that PyTorch reads it without waiting for the device.
        return torch.tensor(math.inf)


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    DECOUPLED = True


def _with_gradient(group: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: x for name, x in group.items() if x.grad is not None}


def ordered_like(x: Tensor, y: Tensor) -> Tensor:
    """Return y, or a copy, in x's memory order, which the CPU kernels assume."""
    if y.stride() == x.stride() or memory_order(y) == memory_order(x):
        return y
    return torch.empty_like(x).copy_(y)


def memory_order(x: Tensor) -> list[int]:
    """Return the strides of dimensions with more than one element; others do not matter."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]
