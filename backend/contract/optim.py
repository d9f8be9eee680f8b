"""The training contract: optimizers, and the same updates batched over many tensors."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from duet.backend.contract.inference import Tensor


class Optimizer(Protocol):
    """One optimizer over parameter groups; see `Optim`."""

    def step(
        self, learning_rates: Sequence[float], momentum: float, lost: Tensor | None = None
    ) -> None:
        """Make one update from the current gradients, with a learning rate per group.

        Parameters without a gradient are unchanged. Learning rates, momentum and decay are rounded
        to float32, even for float64 parameters.

        Args:
            lost: 0-d float32, 0 or 1. If 1, parameters and state keep their values whatever the
                gradients are, and the step still counts: see `uncount_step`.

        Raises:
            ValueError: the number of learning rates differs from the number of groups.
        """

    def uncount_step(self) -> None:
        """Undo the count of the last step, for which `lost` was 1.

        The host calls it once it knows, which may be long after the device skipped the step.
        """

    def zero_grad(self) -> None:
        """Clear the gradients: zeros or None until the next backward pass."""

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Return a copy of the state by name; empty before the first step.

        SGD: `PARAMETER.momentum`. Adam and AdamW: `PARAMETER.first_moment`,
        `PARAMETER.second_moment` and `updates`, 0-d int64.
        """

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore `state_arrays()`; ValueError for an unknown name or wrong shape."""


class Optim(Protocol):
    """Optimizers, and the EMA. A group is (parameters by name, weight decay)."""

    def SGD(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """Create SGD with Nesterov momentum and L2 weight decay.

        g = grad + decay * w;  v = g at the first step, then momentum * v + g;
        w -= lr * (g + momentum * v). With momentum 0: w -= lr * g, v unchanged.
        """

    def Adam(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """Create Adam with L2 weight decay; beta1 is the step's momentum, beta2 is 0.999.

        g = grad + decay * w;  m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g²;
        w -= rate * m / (sqrt(v) + eps). At step t, counted from 1 for all parameters together,
        rate = lr * sqrt(1 - beta2**t) / (1 - beta1**t) and eps = 1e-8 * sqrt(1 - beta2**t). These
        include the bias corrections. beta2, 1e-8, rate and eps are rounded to float32 too.

        `step` raises ValueError for a momentum outside [0, 1).
        Source: Kingma & Ba 2015, arXiv:1412.6980.
        """

    def AdamW(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> Optimizer:
        """Create AdamW (decoupled weight decay): g = grad; w *= 1 - lr * decay before each update.

        Source: Loshchilov & Hutter 2019, arXiv:1711.05101.
        """

    def ema_update_(
        self,
        averages: Sequence[Tensor],
        values: Sequence[Tensor],
        decay: float,
        lost: Tensor | None = None,
    ) -> None:
        """Set averages[i] = decay * averages[i] + (1 - decay) * values[i], in place, no gradient.

        An average equal to its value is unchanged, bit for bit.

        Args:
            lost: 0-d float32, 0 or 1. If 1, the averages of finite values are unchanged.

        Raises:
            ValueError: the numbers of tensors differ.
        """


class MultiTensor(Optim, Protocol):
    """The updates of `Optim` batched over many tensors: few kernel launches on a GPU.

    Contract and state are the same; values agree up to rounding. On a GPU, PyTorch evaluates `lost`
    on the device in both; OneFlow reads it on the host, which waits for the device.
    """

    def ema_update_(
        self,
        averages: Sequence[Tensor],
        values: Sequence[Tensor],
        decay: float,
        lost: Tensor | None = None,
    ) -> None:
        """Update the EMA as `Optim.ema_update_` does.

        Only `nn.place` and `nn.pack` may move the memory (`tensor.data = ...`) of a tensor passed
        in before.
        """

    def describe(self, optimizer: str, device: str) -> str:
        """Return a log line: what updates weights and EMA on a device."""
