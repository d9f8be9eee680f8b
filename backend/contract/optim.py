"""The contract of training: optimizers, and the same updates for many tensors together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from duet.backend.contract.inference import Tensor


class Optimizer(Protocol):
    """One optimizer over parameter groups; see `Optim`."""

    def step(
        self, learning_rates: Sequence[float], momentum: float, lost: Tensor | None = None
    ) -> None:
        """Make one update from the present gradients, with a learning rate per group.

        A parameter without a gradient stays as it is. Learning rates, momentum and decay are
        rounded to float32, also for float64 parameters.

        Args:
            lost: 0-d float32, 0 or 1. Where it is 1, parameters and state keep their values,
                whatever the gradients are; only the step is counted: see `uncount_step`.

        Raises:
            ValueError: the number of learning rates is not that of groups.
        """

    def uncount_step(self) -> None:
        """Take back the count of the last step, of which `lost` was 1.

        The host calls it when it knows, which may be long after the device has left out the step.
        """

    def zero_grad(self) -> None:
        """Forget the present gradients: they are zeros or None until the next backward pass."""

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Copy the state by name; it is empty before the first step.

        `PARAMETER.momentum` of SGD; `PARAMETER.first_moment`, `PARAMETER.second_moment` and
        `updates`, 0-d int64, of Adam and AdamW.
        """

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore `state_arrays()`; ValueError for a name or shape that does not fit."""


class Optim(Protocol):
    """Optimizers. A group is (parameters by name, weight decay)."""

    def SGD(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """Make SGD with Nesterov momentum and L2 weight decay.

        g = grad + decay * w;  v = g at the first step, then momentum * v + g;
        w -= lr * (g + momentum * v). With momentum 0: w -= lr * g, v stays as it is.
        """

    def Adam(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """Make Adam with L2 weight decay; beta1 is the momentum of the step, beta2 is 0.999.

        g = grad + decay * w;  m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g²;
        w -= rate * m / (sqrt(v) + eps). At step t, counted from 1 for all parameters together,
        rate = lr * sqrt(1 - beta2**t) / (1 - beta1**t) and eps = 1e-8 * sqrt(1 - beta2**t). These
        include the bias corrections. beta2, 1e-8, rate and eps are rounded to float32 too.

        `step` raises ValueError for a momentum outside [0, 1).
        Source: Kingma & Ba 2015, arXiv:1412.6980.
        """

    def AdamW(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """Make Adam with decoupled weight decay: g = grad; w *= 1 - lr * decay before each update.

        Source: Loshchilov & Hutter 2019, arXiv:1711.05101.
        """


class MultiTensor(Optim, Protocol):
    """The updates of `Optim` and `Ops` for many tensors together: few kernel launches on a GPU.

    Promises and state are the same; the values agree up to rounding. The plain updates read `lost`,
    which waits for the device. These leave that to the device where its kernels can.
    """

    def ema_update_(
        self,
        averages: Sequence[Tensor],
        values: Sequence[Tensor],
        decay: float,
        lost: Tensor | None = None,
    ) -> None:
        """Update the EMA as `Ops.ema_update_` does.

        Only `nn.place` and `nn.pack` may move the memory of a tensor that was given before
        (`tensor.data = ...`).
        """

    def describe(self, optimizer: str, device: str) -> str:
        """Return one line for the log: what updates weights and EMA on a device."""
