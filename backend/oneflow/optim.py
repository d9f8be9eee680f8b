"""Optimizers for OneFlow; documented in `contract.Optim`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import oneflow
from oneflow import Tensor

from duet.backend import checks
from duet.backend.modules import MOMENTS, UPDATES, adam_constants, count_updates
from duet.backend.oneflow import ops


class NamedState:
    """OneFlow optimizer over named parameters with state named `PARAMETER.KIND`."""

    KINDS: dict[str, str]  # OneFlow's name to ours

    def __init__(
        self,
        groups: Sequence[tuple[Mapping[str, Tensor], float]],
        optimizer: type[oneflow.optim.Optimizer],
        **options: bool,
    ) -> None:
        self._parameters = {name: x for group, _ in groups for name, x in group.items()}
        self._optimizer = optimizer(
            [{"params": list(group.values()), "weight_decay": decay} for group, decay in groups],
            **options,
        )

    def zero_grad(self) -> None:
        # Not None, which leaves old sums in OneFlow's buckets under data parallelism.
        self._optimizer.zero_grad(set_to_none=False)

    def uncount_step(self) -> None:
        """Do nothing: this optimizer does not count steps."""

    def _update(self) -> None:
        """Make one step with the settings in the optimizer's parameter groups."""
        self._optimizer.step()

    def state_arrays(self) -> dict[str, np.ndarray]:
        return {
            f"{name}.{kind}": ops.to_numpy(state)
            for their_name, kind in self.KINDS.items()
            for name, parameter in self._parameters.items()
            if (state := self._optimizer._state[parameter].get(their_name)) is not None
        }

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        checks.of_parameters("optimizer state", self._state_shapes(), arrays)
        for name, parameter in self._parameters.items():
            self._optimizer._state[parameter].clear()
            for their_name, kind in self.KINDS.items():
                if (array := arrays.get(f"{name}.{kind}")) is not None:
                    state = ops.tensor(array, ops.device_of(parameter)).to(parameter.dtype)
                    self._optimizer._state[parameter][their_name] = state

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            f"{name}.{kind}": tuple(x.shape)
            for name, x in self._parameters.items()
            for kind in self.KINDS.values()
        }


class SGD(NamedState):
    """`oneflow.optim.SGD` with Nesterov momentum and named state."""

    KINDS = {"momentum_buf": "momentum"}

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

    KINDS = dict(zip(("exp_avg", "exp_avg_sq"), MOMENTS, strict=True))
    DECOUPLED = False  # apply decay to the weights instead of the gradient

    def __init__(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> None:
        # `oneflow.optim.AdamW` would multiply the decay by lr, which here includes the bias
        # correction, to avoid another rounding in the kernel.
        kept = [(group, 0.0 if self.DECOUPLED else decay) for group, decay in groups]
        super().__init__(kept, oneflow.optim.Adam, do_bias_correction=False)
        self._groups = [(list(group.values()), decay) for group, decay in groups]
        self._updates = 0

    def step(
        self, learning_rates: Sequence[float], momentum: float, lost: Tensor | None = None
    ) -> None:
        checks.equal_counts(len(learning_rates), len(self._groups), "learning rates")
        constants = [adam_constants(rate, momentum, self._updates + 1) for rate in learning_rates]
        self._updates += 1
        if ops.is_one(lost):
            return
        if self.DECOUPLED:
            self._shrink(learning_rates)
        for group, found in zip(self._optimizer.param_groups, constants, strict=True):
            group["lr"] = found.rate
            group["eps"] = found.epsilon
            group["betas"] = (found.beta1, found.beta2)
        self._update()

    def uncount_step(self) -> None:
        self._updates -= 1

    def _shrink(self, learning_rates: Sequence[float]) -> None:
        with oneflow.no_grad():
            for (parameters, decay), learning_rate in zip(
                self._groups, learning_rates, strict=True
            ):
                factor = 1 - checks.as_float32(learning_rate) * checks.as_float32(decay)
                for x in parameters:
                    if x.grad is not None:
                        x.mul_(factor)

    def state_arrays(self) -> dict[str, np.ndarray]:
        if not self._updates:
            return {}  # after a skipped first step the moments are zero
        return {**super().state_arrays(), UPDATES: np.array(self._updates)}

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        updates = count_updates(arrays)
        super().load_state_arrays(arrays)
        self._updates = updates

    def _state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {**super()._state_shapes(), UPDATES: ()}


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    DECOUPLED = True
