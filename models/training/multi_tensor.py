"""--multi_tensor_optimizer: the updates of many tensors together, used if they prove right.

`training/state.py::build_state` asks `choose_updates`; each fast update is tried on the device of
the training, beside the plain one, on small tensors. On a GPU there are as many of them as of the
model: its kernels take long lists in chunks. The model and its EMA are then packed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np

from backend import autograd, multi_tensor, nn, ops, optim
from backend.checks import CPU
from backend.contract import Optim, Tensor
from models.detector import Detector
from models.heads.base import LossTerms
from models.proof import find_problem
from models.training.ema import Average, ModelEMA
from utils.cli.train_config import TrainConfig
from utils.report.stage_timer import StageTimer

Arrays = Mapping[str, np.ndarray]

# Rounding of three updates of values about 1 is a few 1e-7 of them; a wrong formula is off by
# more than the smallest learning rate, 0.01.
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
SHAPES = ((3,), (4, 3, 1, 1), (2000,), (2, 4, 3, 3), (), (7,), (1, 5))
RATES = ((0.1, 0.02), (0.05, 0.03), (0.01, 0.04))  # per step and group
MOMENTA = (0.8, 0.9, 0.0)
LOST_STEP = 1  # before it comes one that is lost

log = logging.getLogger("train")


class Updates(NamedTuple):
    """What updates the weights, and what updates their EMA."""

    optimizers: Optim
    average: Average

    @property
    def means(self) -> dict[str, str]:
        """How each of them computes, "fast" or "plain", by name."""
        plain = {"optimizer": self.optimizers is optim, "average": self.average is ops.ema_update_}
        return {name: "plain" if is_plain else "fast" for name, is_plain in plain.items()}

    def average_of(self, model: Detector) -> ModelEMA:
        """Make the EMA of a model that is where it stays; pack both for a fast update."""
        ema = ModelEMA(model, self.average)
        if self.average is not ops.ema_update_:
            nn.pack(model)
            nn.pack(ema.model)
        return ema


def choose_updates(config: TrainConfig, number: int, device: str, dtype: str) -> Updates:
    """Choose the plain updates or, with the flag, the fast ones that agree; one line says which.

    number: of the model's tensors.
    """
    plain = Updates(optim, ops.ema_update_)
    if not config.multi_tensor_optimizer:
        return plain
    name, flag = config.optimizer, "--multi_tensor_optimizer"
    trial = Trial(proof_size(number, device), device, dtype)
    step_problem = find_problem(
        lambda: try_optimizer(multi_tensor, name, trial),
        lambda: try_optimizer(optim, name, trial),
        TOLERANCE[dtype],
    )
    average_problem = find_problem(
        lambda: try_average(multi_tensor.ema_update_, nn.pack, trial),
        lambda: try_average(ops.ema_update_, lambda module: None, trial),
        TOLERANCE[dtype],
    )
    for part, problem in ((name, step_problem), ("EMA of the weights", average_problem)):
        if problem:
            log.info("%s, %s: the plain path is used only for it (%s)", flag, part, problem)
    if not step_problem and not average_problem:
        log.info("%s: %s; equal to the plain path", flag, multi_tensor.describe(name, device))
    return Updates(
        optim if step_problem else multi_tensor,
        ops.ema_update_ if average_problem else multi_tensor.ema_update_,
    )


def proof_size(number: int, device: str) -> int:
    """Return how many tensors show what a device does with so many; a CPU takes one at a time."""
    return len(SHAPES) if device == CPU else max(number, len(SHAPES))


class Trial(NamedTuple):
    """Tensors that an update is tried on."""

    number: int
    device: str
    dtype: str

    def arrays(self, seed: int) -> dict[str, np.ndarray]:
        """Return arrays of many shapes by name, drawn by the seed."""
        random = np.random.Generator(np.random.Philox(seed))
        shapes = islice(cycle(SHAPES), self.number)
        return {
            f"tensor {index}": np.asarray(random.uniform(-1, 1, shape)).astype(self.dtype)
            for index, shape in enumerate(shapes)
        }

    def module(self, seed: int) -> Any:
        """Return a module of which the tensors are buffers."""
        module = nn.Module()
        for name, array in self.arrays(seed).items():
            nn.register_buffer(module, name, array)
        return nn.place(module, self.device, self.dtype)

    def lost(self, is_lost: bool) -> Tensor:
        return ops.full((), float(is_lost), device=self.device)


def try_optimizer(optimizers: Optim, name: str, trial: Trial) -> Arrays:
    """Return weights, state and forgotten gradients after three steps and a lost one, one tensor
    without a gradient.
    """
    arrays = trial.arrays(seed=0)
    weights = {name: autograd.variable(array, trial.device) for name, array in arrays.items()}
    names = list(weights)
    groups = [({n: weights[n] for n in names[half::2]}, (0.1, 0.0)[half]) for half in (0, 1)]
    optimizer = getattr(optimizers, name)(groups)
    for step, (rates, momentum) in enumerate(zip(RATES, MOMENTA, strict=True)):
        gradients = {n: x for n, x in trial.arrays(seed=step + 1).items() if n != names[0]}
        if step == LOST_STEP:
            backpropagate(weights, {n: x * np.nan for n, x in gradients.items()})
            optimizer.step(rates, momentum, trial.lost(True))
            optimizer.uncount_step()
            optimizer.zero_grad()
        backpropagate(weights, gradients)
        optimizer.step(rates, momentum, trial.lost(False))
        optimizer.zero_grad()
    found = {n: ops.to_numpy(x) for n, x in weights.items()} | optimizer.state_arrays()
    left = {n: gradient for n, x in weights.items() if (gradient := x.grad) is not None}
    return found | {f"gradient of {n}": ops.to_numpy(gradient) for n, gradient in left.items()}


def backpropagate(weights: Mapping[str, Tensor], gradients: Arrays) -> None:
    """Add these gradients to those of the weights, by a backward pass."""
    products = []
    for name, gradient in gradients.items():
        x = weights[name]
        products.append(x * ops.tensor(gradient.astype(ops.dtype_of(x)), ops.device_of(x)))
    total = ops.sum(ops.stack([ops.sum(product) for product in products]))
    autograd.value_and_backward(
        lambda images: images, lambda *_: LossTerms({}, total), total, None, StageTimer()
    )


def try_average(
    average: Average, pack: Callable[[Any], None], trial: Trial
) -> dict[str, np.ndarray]:
    """Return EMAs after three updates, each after a lost one, and how far some moved from values
    that they equal.

    pack: lays out modules of which the same is found once more.
    """
    found = {}
    for layout, lay_out in (("", lambda module: None), ("packed ", pack)):
        averages, values, kept, equal = modules = [trial.module(seed) for seed in (0, 1, 0, 0)]
        for module in modules:
            lay_out(module)
        for decay in (0.0005, 0.3, 0.9999):
            for changed, followed in ((averages, values), (kept, equal)):
                tensors = nn.float_tensors(changed)(), nn.float_tensors(followed)()
                for is_lost in (True, False):
                    average(*tensors, decay, trial.lost(is_lost))
        wanted = nn.state_arrays(equal)
        for name, array in nn.state_arrays(kept).items():
            found[f"{layout}equal EMA of {name}"] = array - wanted[name]
        for name, array in nn.state_arrays(averages).items():
            found[f"{layout}EMA of {name}"] = array
    return found
