"""Optimizers for OneFlow; documented in `contract.Optim`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import oneflow
from oneflow import Tensor

from duet.backend import checks, modules
from duet.backend.modules import MOMENTS, adam_constants
from duet.backend.oneflow import ops


class NamedState(modules.NamedState):
    """OneFlow optimizer over named parameters."""

    their_kinds: Sequence[str]  # OneFlow's names of `kinds`

    def __init__(
        self,
        groups: Sequence[tuple[Mapping[str, Tensor], float]],
        optimizer: type[oneflow.optim.Optimizer],
        **options: bool,
    ) -> None:
        self.parameters = {name: x for group, _ in groups for name, x in group.items()}
        self._optimizer = optimizer(
            [{"params": list(group.values()), "weight_decay": decay} for group, decay in groups],
            **options,
        )

    def zero_grad(self) -> None:
        # Not None, which leaves old sums in OneFlow's buckets under data parallelism.
        self._optimizer.zero_grad(set_to_none=False)

    def _update(self) -> None:
        """Make one step with the settings in the optimizer's parameter groups."""
        self._optimizer.step()

    def kept_arrays(self) -> dict[str, np.ndarray]:
        return {
            f"{name}.{kind}": ops.to_numpy(state)
            for their_kind, kind in zip(self.their_kinds, self.kinds, strict=True)
            for name, parameter in self.parameters.items()
            if (state := self._optimizer._state[parameter].get(their_kind)) is not None
        }

    def keep_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, parameter in self.parameters.items():
            self._optimizer._state[parameter].clear()
            for their_kind, kind in zip(self.their_kinds, self.kinds, strict=True):
                if (array := arrays.get(f"{name}.{kind}")) is not None:
                    state = ops.tensor(array, ops.device_of(parameter)).to(parameter.dtype)
                    self._optimizer._state[parameter][their_kind] = state


class SGD(NamedState):
    """`oneflow.optim.SGD` with Nesterov momentum and named state."""

    kinds, their_kinds = ("momentum",), ("momentum_buf",)

    def __init__(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> None:
        super().__init__(groups, oneflow.optim.SGD)

    def step(
        self, learning_rates: Sequence[float], momentum: float, lost: Tensor | None = None
    ) -> None:
        param_groups = self._optimizer.param_groups
        checks.equal_counts(len(learning_rates), len(param_groups), "learning rates")
        if ops.is_one(lost):
            return
        for group, learning_rate in zip(param_groups, learning_rates, strict=True):
            # ParamGroup is not a dictionary and has no `update`.
            group["lr"] = learning_rate
            group["momentum"] = momentum
            group["nesterov"] = momentum != 0
        self._update()


class Adam(NamedState):
    """`oneflow.optim.Adam` with named state; beta1 is the step's momentum."""

    kinds, their_kinds = MOMENTS, ("exp_avg", "exp_avg_sq")
    updates: int = 0
    DECOUPLED = False  # apply decay to the weights instead of the gradient

    def __init__(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> None:
        # `oneflow.optim.AdamW` would multiply the decay by lr, which here includes the bias
        # correction, to avoid another rounding in the kernel.
        kept = [(group, 0.0 if self.DECOUPLED else decay) for group, decay in groups]
        super().__init__(kept, oneflow.optim.Adam, do_bias_correction=False)
        self._groups = [(list(group.values()), decay) for group, decay in groups]

    def step(
        self, learning_rates: Sequence[float], momentum: float, lost: Tensor | None = None
    ) -> None:
        checks.equal_counts(len(learning_rates), len(self._groups), "learning rates")
        constants = [adam_constants(rate, momentum, self.updates + 1) for rate in learning_rates]
        self.updates += 1
        if ops.is_one(lost):
            return
        if self.DECOUPLED:
            self._shrink(learning_rates)
        for group, found in zip(self._optimizer.param_groups, constants, strict=True):
            group["lr"] = found.rate
            group["eps"] = found.epsilon
            group["betas"] = (found.beta1, found.beta2)
        self._update()

    def _shrink(self, learning_rates: Sequence[float]) -> None:
        with oneflow.no_grad():
            for (parameters, decay), learning_rate in zip(
                self._groups, learning_rates, strict=True
            ):
                factor = 1 - checks.as_float32(learning_rate) * checks.as_float32(decay)
                for x in parameters:
                    if x.grad is not None:
                        x.mul_(factor)


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    DECOUPLED = True
