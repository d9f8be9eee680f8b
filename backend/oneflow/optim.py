"""Optimizers under OneFlow; `contract.Optim` says what each one promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import oneflow
from oneflow import Tensor

from backend import checks
from backend.oneflow import ops

SUFFIX = ".momentum"


class SGD:
    """`oneflow.optim.SGD` with Nesterov momentum and named state."""

    def __init__(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> None:
        self._parameters = {name: x for group, _ in groups for name, x in group.items()}
        self._optimizer = oneflow.optim.SGD(
            [{"params": list(group.values()), "weight_decay": decay} for group, decay in groups]
        )

    def step(self, learning_rates: Sequence[float], momentum: float) -> None:
        param_groups = self._optimizer.param_groups
        checks.equal_counts(len(learning_rates), len(param_groups), "learning rates")
        for group, learning_rate in zip(param_groups, learning_rates, strict=True):
            # Not a dictionary: a ParamGroup has no `update`.
            group["lr"] = learning_rate
            group["momentum"] = momentum
            group["nesterov"] = momentum != 0
        self._optimizer.step()

    def zero_grad(self) -> None:
        # Zeros, not None: under data parallelism None leaves the old sums in OneFlow's buckets.
        self._optimizer.zero_grad(set_to_none=False)

    def state_arrays(self) -> dict[str, np.ndarray]:
        return {
            name + SUFFIX: ops.to_numpy(buffer)
            for name, parameter in self._parameters.items()
            if (buffer := self._optimizer._state[parameter].get("momentum_buf")) is not None
        }

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        shapes = {name + SUFFIX: x.shape for name, x in self._parameters.items()}
        checks.optimizer_state(shapes, arrays)
        for name, parameter in self._parameters.items():
            self._optimizer._state[parameter].clear()
            if (array := arrays.get(name + SUFFIX)) is not None:
                buffer = ops.tensor(array, ops.device_of(parameter)).to(parameter.dtype)
                self._optimizer._state[parameter]["momentum_buf"] = buffer
