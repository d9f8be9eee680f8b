"""Verification of batched tensor updates for --multi_tensor_optimizer.

They are compared with the plain updates on the run's device at its start, and used if they agree.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

import numpy as np

from duet.backend import autograd, multi_tensor, nn, ops, optim
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.backend.proof import find_problem
from duet.models.heads.base import LossTerms
from duet.models.training.ema import ModelEMA
from duet.utils.report.stage_timer import StageTimer

Arrays = Mapping[str, np.ndarray]

# Three updates of values near 1 round to a few 1e-7; a wrong formula differs by more than the
# smallest learning rate, 0.01.
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
SHAPES = ((3,), (4, 3, 1, 1), (2000,), (2, 4, 3, 3), (), (7,), (1, 5))
RATES = ((0.1, 0.02), (0.05, 0.03), (0.01, 0.04))  # per step and group
MOMENTA = (0.8, 0.9, 0.0)
LOST_STEP = 1  # preceded by a lost step
EARLIER_UPDATES = 2000  # the EMA's decay is then about two thirds

log = logging.getLogger("train")


def choose_updates(name: str, number: int, device: str, dtype: str) -> bool:
    """Return whether batched updates agree with plain ones, and log the outcome.

    Args:
        name: name of the optimizer.
        number: number of the model's tensors.
    """
    # GPU kernels process long lists in chunks, a CPU one tensor at a time.
    tried = len(SHAPES) if device == CPU else max(number, len(SHAPES))
    problem = find_problem(
        lambda: try_updates(True, name, tried, device, dtype),
        lambda: try_updates(False, name, tried, device, dtype),
        TOLERANCE[dtype],
    )
    if problem:
        log.info("--multi_tensor_optimizer: using the plain path (%s)", problem)
        return False
    described = multi_tensor.describe(name, device)
    log.info("--multi_tensor_optimizer: %s; verified against the plain path", described)
    return True


def try_updates(together: bool, name: str, number: int, device: str, dtype: str) -> Arrays:
    """Return weights, state and EMAs after three steps and a lost one.

    One tensor has no gradient.
    """
    random = np.random.Generator(np.random.Philox(0))

    def draw() -> dict[str, np.ndarray]:
        shapes = islice(cycle(SHAPES), number)
        return {
            f"tensor {index}": np.asarray(random.uniform(-1, 1, shape)).astype(dtype)
            for index, shape in enumerate(shapes)
        }

    weights = {key: autograd.variable(array, device) for key, array in draw().items()}
    keys = list(weights)
    groups = [({key: weights[key] for key in keys[half::2]}, (0.1, 0.0)[half]) for half in (0, 1)]
    optimizer = getattr(multi_tensor if together else optim, name)(groups)
    followed: Any = nn.Module()
    for key, array in draw().items():
        nn.register_buffer(followed, key, array)
    followed = nn.place(followed, device, dtype)
    ema = ModelEMA(followed, together)
    ema.updates = EARLIER_UPDATES
    for step, (rates, momentum) in enumerate(zip(RATES, MOMENTA, strict=True)):
        gradients = {key: array for key, array in draw().items() if key != keys[0]}
        nn.load_state_arrays(followed, draw())
        for is_lost in (True, False) if step == LOST_STEP else (False,):
            lost = ops.full((), float(is_lost), device=device)
            spoiled = {key: array * np.nan for key, array in gradients.items()}
            backpropagate(weights, spoiled if is_lost else gradients)
            optimizer.step(rates, momentum, lost)
            optimizer.zero_grad()
            ema.update(followed, lost)
            if is_lost:
                optimizer.uncount_step()
                ema.uncount_update()
    found = {key: ops.to_numpy(x) for key, x in weights.items()} | optimizer.state_arrays()
    held = nn.state_arrays(ema.model)
    return found | {f"EMA of {key}": array for key, array in held.items()}


def backpropagate(weights: Mapping[str, Tensor], gradients: Arrays) -> None:
    """Add gradients to those of the weights through a backward pass."""
    products = []
    for name, gradient in gradients.items():
        x = weights[name]
        products.append(x * ops.tensor(gradient.astype(ops.dtype_of(x)), ops.device_of(x)))
    total = ops.sum(ops.stack([ops.sum(product) for product in products]))
    autograd.value_and_backward(
        lambda images: images, lambda *_: LossTerms({}, total), total, None, StageTimer()
    )
