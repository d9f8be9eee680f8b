"""Optimizers and EMA for PyTorch; documented in `contract.Optim`.

They use PyTorch's functional forms: the first `torch.optim.SGD` of a process takes a second to
import the compiler.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from duet.backend import checks, updates
from duet.backend.checks import CPU
from duet.backend.torch import ops
from duet.backend.updates import BETA2, Update


class Kernels(updates.Optimizer):
    # True: kernels that read `lost` on the device and need all tensors of a parameter in the same
    # memory order. None: PyTorch's choice.
    FUSED: bool | None = None

    def zero_grad(self) -> None:
        # None makes the next backward pass assign gradients instead of adding to zeros.
        for x in self.parameters.values():
            x.grad = None

    def skips(self, lost: Tensor | None) -> bool:
        return not self.FUSED and lost is not None and ops.reads_at_once(lost) and bool(lost.item())

    def state_like(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        return torch.zeros_like(x) if state is None else self._ordered(x, state)

    def _ordered(self, x: Tensor, y: Tensor) -> Tensor:
        return ordered_like(x, y) if self.FUSED else y

    def update_(self, update: Update) -> None:
        ordered = [*map(self._ordered, update.weights, update.gradients)]
        lost, update = update.lost, update._replace(gradients=ordered)
        with _undone_if(None if self.FUSED else lost, sum(update.states, update.weights)):
            self.run_kernels(update, lost if self.FUSED else None)

    @abstractmethod
    def run_kernels(self, update: Update, found_inf: Tensor | None) -> None:
        """Update, by fused kernels only if `found_inf` is not 1."""


class SGD(Kernels, updates.SGD):
    def run_kernels(self, update: Update, found_inf: Tensor | None) -> None:
        constants = update.constants
        sgd(
            update.weights,
            update.gradients,
            update.states[0] if update.states else [None] * len(update.weights),
            fused=self.FUSED,
            found_inf=found_inf,
            weight_decay=constants.decay,
            momentum=constants.momentum,
            lr=constants.rate,
            dampening=0.0,
            nesterov=constants.momentum != 0,
            maximize=False,
        )


class Adam(Kernels, updates.Adam):
    def run_kernels(self, update: Update, found_inf: Tensor | None) -> None:
        weights, gradients, (first, second), constants, _ = update
        if constants.shrink != 1.0:
            torch._foreach_mul_(weights, unless_lost(constants.shrink, 1.0, found_inf, weights))
        # At step infinity PyTorch corrects no bias: rate and epsilon already do. Plain kernels read
        # it, which would wait for a device.
        infinity = torch.full((), math.inf, device=weights[0].device if self.FUSED else CPU)
        adam(
            weights,
            gradients,
            first,
            second,
            [],
            [infinity] * len(weights),
            amsgrad=False,
            fused=self.FUSED,
            found_inf=found_inf,
            beta1=constants.momentum,
            beta2=BETA2,
            lr=constants.rate,
            weight_decay=constants.decay,
            eps=constants.epsilon,
            maximize=False,
        )


class AdamW(Adam, updates.AdamW):
    pass


def ema_update_(
    averages: Sequence[Tensor],
    values: Sequence[Tensor],
    decay: float,
    lost: Tensor | None = None,
) -> None:
    checks.equal_counts(len(values), len(averages), "values")
    weight = unless_lost(1.0 - decay, 0.0, lost, averages)
    with torch.no_grad():
        for average, value in zip(averages, values, strict=True):
            average.lerp_(value, weight)


def unless_lost(
    number: float, otherwise: float, lost: Tensor | None, like: Sequence[Tensor]
) -> float | Tensor:
    """Return a factor for `like`, `otherwise` if lost is 1.

    On a GPU it is a tensor, because reading `lost` would wait for the device.
    """
    if lost is None or not like:
        return number
    if ops.reads_at_once(lost):
        return otherwise if lost.item() else number
    lost = lost.to(like[0].dtype)
    factor = (1.0 - lost) * number  # exact, because lost is 0 or 1
    return factor + lost * otherwise if otherwise else factor


@contextmanager
def _undone_if(lost: Tensor | None, changed: list[Tensor]) -> Iterator[None]:
    """Undo changes of plain kernels on a GPU if `lost` is 1; the host does not read it."""
    if lost is None or ops.reads_at_once(lost):
        yield
        return
    before = torch._foreach_mul(changed, 1.0)
    yield
    is_lost, pairs = lost > 0.0, zip(before, changed, strict=True)
    torch._foreach_copy_(changed, [torch.where(is_lost, *pair) for pair in pairs])


def ordered_like(x: Tensor, y: Tensor) -> Tensor:
    """Return y, or a copy, in x's memory order, which the CPU kernels assume."""
    if y.stride() == x.stride() or memory_order(y) == memory_order(x):
        return y
    return torch.empty_like(x).copy_(y)


def memory_order(x: Tensor) -> list[int]:
    """Return the strides of dimensions with more than one element; others do not matter."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]
