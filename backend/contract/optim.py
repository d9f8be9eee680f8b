"""The contract of training: optimizers, and the same updates for many tensors together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from backend.contract.inference import Tensor


class Optimizer(Protocol):
    """One optimizer over parameter groups; see `Optim`."""

    def step(self, learning_rates: Sequence[float], momentum: float) -> None:
        """One update with a learning rate per group, from the gradients that are there.

        A parameter whose gradient is None is left alone. Rates, momentum and decay are rounded
        to float32, also for float64 parameters.

        Raises:
            ValueError: another number of learning rates than of groups.
        """

    def zero_grad(self) -> None:
        """Set the gradients that are there to zero."""

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Copies of the state by name; what the first step makes is absent before it.

        `PARAMETER.momentum` of SGD; `PARAMETER.first_moment`, `PARAMETER.second_moment` and
        `updates`, 0-d int64, of Adam and AdamW.
        """

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore `state_arrays()`; ValueError for a name or shape that does not fit."""


class Optim(Protocol):
    """Optimizers. A group is (parameters by name, weight decay)."""

    def SGD(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """SGD with Nesterov momentum and L2 weight decay.

        g = grad + decay * w;  v = g at the first step, then momentum * v + g;
        w -= lr * (g + momentum * v). With momentum 0: w -= lr * g, v stays as it is.
        """

    def Adam(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """Adam with L2 weight decay; its beta1 is the momentum of the step, beta2 is 0.999.

        g = grad + decay * w;  m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g²;
        w -= rate * m / (sqrt(v) + eps). At step t, counted from 1 for all parameters alike,
        rate = lr * sqrt(1 - beta2**t) / (1 - beta1**t) and eps = 1e-8 * sqrt(1 - beta2**t): the
        corrections of the bias, folded in. beta2, 1e-8, rate and eps are rounded to float32 too.

        `step` raises ValueError for a momentum outside [0, 1).
        Source: Kingma & Ba 2015, arXiv:1412.6980.
        """

    def AdamW(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """Adam with decoupled weight decay: g = grad, and w *= 1 - lr * decay before its update.

        Source: Loshchilov & Hutter 2019, arXiv:1711.05101.
        """


class MultiTensor(Protocol):
    """The updates of `Optim` and `Ops` for many tensors together: in few launches on a GPU.

    The same promises and the same state; the values agree to rounding.
    """

    def SGD(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """As `Optim.SGD`."""

    def Adam(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """As `Optim.Adam`."""

    def AdamW(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """As `Optim.AdamW`."""

    def ema_update_(
        self, averages: Sequence[Tensor], values: Sequence[Tensor], decay: float
    ) -> None:
        """As `Ops.ema_update_`.

        Moving the memory of a tensor that was given before (`tensor.data = ...`) is for
        `nn.place` and `nn.pack` alone.
        """

    def describe(self, optimizer: str, device: str) -> str:
        """One line for the log: what updates weights and averages on a device."""
