"""A trial of batched tensor updates on a GPU, before --multi_tensor_optimizer relies on them.

The test suite compares both paths on CPUs; the kernels of the user's GPU can only be tried there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from duet.backend import autograd, multi_tensor, ops, optim
from duet.backend.checks import CPU
from duet.models.heads.base import LossTerms
from duet.utils.report.stage_timer import StageTimer

SHAPES = ((3,), (4, 3, 1, 1), (2000,), (), (7,))
# Two updates of values near 1 round to a few 1e-7; a wrong formula differs by more than the rate.
RATE, TOLERANCE = 0.01, 1e-5

log = logging.getLogger("train")


def choose_updates(name: str, device: str) -> bool:
    """Return whether an optimizer's batched updates and the EMA's can be used; log the outcome."""
    problem = "" if device == CPU else trial_problem(name, device)
    how = f"using the plain path ({problem})" if problem else multi_tensor.describe(name, device)
    log.info("--multi_tensor_optimizer: %s", how)
    return not problem


def trial_problem(name: str, device: str) -> str:
    """Return how batched updates fail or differ from plain ones on a device; "" if they agree."""
    try:
        batched = _updated(getattr(multi_tensor, name), multi_tensor, device)
    except RuntimeError as error:  # a missing kernel
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    for key, plain in _updated(getattr(optim, name), ops, device).items():
        difference = float(np.abs(batched[key] - plain).max())
        if not difference <= TOLERANCE:
            return f"{key} differs by {difference:.1g}"
    return ""


def _updated(optimizer: Any, average: Any, device: str) -> Mapping[str, np.ndarray]:
    """Return small weights, the optimizer's state and EMAs after two updates and a lost one."""
    random = np.random.Generator(np.random.Philox(0))

    def draw() -> list[np.ndarray]:
        return [np.asarray(random.uniform(-1, 1, shape), np.float32) for shape in SHAPES]

    weights = [autograd.variable(array, device) for array in draw()]
    averages = [ops.tensor(array, device) for array in draw()]
    updates = optimizer([({f"tensor {index}": x for index, x in enumerate(weights)}, 0.1)])
    for is_lost in (0.0, 1.0, 0.0):
        lost = ops.full((), is_lost, device=device)
        parts = [ops.sum(x * ops.tensor(g, device)) for x, g in zip(weights, draw(), strict=True)]
        total = ops.sum(ops.stack(parts))
        autograd.value_and_backward(
            lambda x: x, lambda *_, x=total: LossTerms({}, x), total, None, StageTimer()
        )
        updates.step((RATE,), 0.9, lost)
        updates.zero_grad()
        average.ema_update_(averages, [x.detach() for x in weights], 0.5, lost)
    found = {f"tensor {index}": x for index, x in enumerate(weights)}
    found |= {f"EMA of tensor {index}": x for index, x in enumerate(averages)}
    return {**updates.state_arrays(), **{key: ops.to_numpy(x) for key, x in found.items()}}
