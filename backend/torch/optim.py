"""Optimizers under PyTorch; `contract.Optim` says what each one promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.optim.sgd import sgd

from backend import checks
from backend.torch import ops

SUFFIX = ".momentum"


class SGD:
    """PyTorch's SGD with Nesterov momentum and named state.

    By its functional form: the first `torch.optim.SGD` of a process spends a second on importing
    the compiler.
    """

    def __init__(self, groups: Sequence[tuple[Mapping[str, Tensor], float]]) -> None:
        self._groups = [(dict(group), decay) for group, decay in groups]
        self._parameters = {name: x for group, _ in self._groups for name, x in group.items()}
        self._momentum: dict[str, Tensor] = {}

    def step(self, learning_rates: Sequence[float], momentum: float) -> None:
        checks.equal_counts(len(learning_rates), len(self._groups), "learning rates")
        with torch.no_grad():
            for (group, decay), learning_rate in zip(self._groups, learning_rates, strict=True):
                self._step_group(group, decay, learning_rate, momentum)

    def _step_group(
        self, group: Mapping[str, Tensor], decay: float, learning_rate: float, momentum: float
    ) -> None:
        trained = {name: x for name, x in group.items() if x.grad is not None}
        buffers = [self._momentum.get(name) for name in trained]
        sgd(
            list(trained.values()),
            [x.grad for x in trained.values()],
            buffers,
            weight_decay=checks.as_float32(decay),
            momentum=checks.as_float32(momentum),
            lr=checks.as_float32(learning_rate),
            dampening=0.0,
            nesterov=momentum != 0,
            maximize=False,
        )
        if momentum != 0:
            self._momentum.update(zip(trained, buffers, strict=True))

    def zero_grad(self) -> None:
        # Zeros, not None: an unused parameter is then treated alike on every backend.
        for x in self._parameters.values():
            if x.grad is not None:
                x.grad.zero_()

    def state_arrays(self) -> dict[str, np.ndarray]:
        return {name + SUFFIX: ops.to_numpy(buffer) for name, buffer in self._momentum.items()}

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        shapes = {name + SUFFIX: x.shape for name, x in self._parameters.items()}
        checks.optimizer_state(shapes, arrays)
        self._momentum = {
            name: ops.tensor(arrays[name + SUFFIX], ops.device_of(x)).to(x.dtype)
            for name, x in self._parameters.items()
            if name + SUFFIX in arrays
        }
