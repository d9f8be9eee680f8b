"""Fast paths of a step: updates of many tensors together, and CUDA graphs of a compiled step.

Each is tried beside the plain path at the start of a run, on its device, and used if both agree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np

from backend import autograd, multi_tensor, nn, ops, optim
from backend.checks import CPU
from backend.contract import Optim, Tensor
from backend.processes import this_process
from backend.proof import find_problem
from models.blocks.conv import Conv
from models.detector import Detector
from models.heads.base import LossTerms
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
# A lost loss or gradient of a graph is another pass's, or nothing. TF32 rounds to 5e-4.
GRAPH_TOLERANCE = 0.05
# The compiler runs a function as it is, then records it: most of these passes replay it.
GRAPH_UPDATES, PASSES = 3, 2  # of the trial; passes of an update, whose gradients add up
IMAGES, MAPS = (4, 3, 16, 16), (4, 2, 8, 8)

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


PLAIN = Updates(optim, ops.ema_update_)


def choose_updates(config: TrainConfig, number: int, device: str, dtype: str) -> Updates:
    """Choose the plain updates or, with the flag, the fast ones if they agree; a line says which.

    number: how many tensors the model has.
    """
    if not config.multi_tensor_optimizer:
        return PLAIN
    name, fast = config.optimizer, Updates(multi_tensor, multi_tensor.ema_update_)
    # A GPU's kernels take long lists in chunks, a CPU one tensor at a time.
    tried = len(SHAPES) if device == CPU else max(number, len(SHAPES))
    problem = find_problem(
        lambda: try_updates(fast, name, tried, device, dtype),
        lambda: try_updates(PLAIN, name, tried, device, dtype),
        TOLERANCE[dtype],
    )
    if problem:
        log.info("--multi_tensor_optimizer: the plain path is used (%s)", problem)
        return PLAIN
    described = multi_tensor.describe(name, device)
    log.info("--multi_tensor_optimizer: %s; equal to the plain path", described)
    return fast


def try_updates(updates: Updates, name: str, number: int, device: str, dtype: str) -> Arrays:
    """Return weights, state and EMAs of tensors after three steps and a lost one.

    One tensor has no gradient.
    """
    random = np.random.Generator(np.random.Philox(0))

    def draw() -> dict[str, np.ndarray]:
        shapes = islice(cycle(SHAPES), number)
        return {
            f"tensor {index}": np.asarray(random.uniform(-1, 1, shape)).astype(dtype)
            for index, shape in enumerate(shapes)
        }

    def draw_module() -> Any:
        module = nn.Module()
        for buffer, array in draw().items():
            nn.register_buffer(module, buffer, array)
        module = nn.place(module, device, dtype)
        if updates.average is not ops.ema_update_:
            nn.pack(module)
        return module

    weights = {key: autograd.variable(array, device) for key, array in draw().items()}
    keys = list(weights)
    groups = [({key: weights[key] for key in keys[half::2]}, (0.1, 0.0)[half]) for half in (0, 1)]
    optimizer = getattr(updates.optimizers, name)(groups)
    averages, followed = draw_module(), draw_module()
    for step, (rates, momentum) in enumerate(zip(RATES, MOMENTA, strict=True)):
        gradients = {key: array for key, array in draw().items() if key != keys[0]}
        for is_lost in (True, False) if step == LOST_STEP else (False,):
            lost = ops.full((), float(is_lost), device=device)
            spoiled = {key: array * np.nan for key, array in gradients.items()}
            backpropagate(weights, spoiled if is_lost else gradients)
            optimizer.step(rates, momentum, lost)
            if is_lost:
                optimizer.uncount_step()
            optimizer.zero_grad()
            tensors = nn.float_tensors(averages)(), nn.float_tensors(followed)()
            updates.average(*tensors, 0.9, lost)
    found = {key: ops.to_numpy(x) for key, x in weights.items()} | optimizer.state_arrays()
    held = nn.state_arrays(averages)
    return found | {f"EMA of {key}": array for key, array in held.items()}


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


def graph_problem(config: TrainConfig, device: str) -> str:
    """Return why a compiled step does not run as CUDA graphs, in words; "" if it does.

    A GPU gets a graph's pass as a few launches, not as one for each kernel.
    """
    if device == CPU:
        return "the device is a CPU"
    if this_process().world_size > 1:
        return "several processes exchange gradients in the middle of a pass"
    if config.dropout:  # the compiler takes the tensors of a module for as fixed as weights
        return "--dropout draws a new tensor for each pass"
    return trial_problem(device)


def trial_problem(device: str) -> str:
    """Return how a small network trained in graphs differs from the plain one; "" if it does not.

    The results of a graph lie in memory that the next pass overwrites; the trial proves that none
    is lost. A driver or compiler that fails is such a problem too.
    """
    in_graphs = partial(autograd.compiled, graphs=True)
    return find_problem(
        lambda: train_small(device, in_graphs),
        lambda: train_small(device, lambda x: x),
        GRAPH_TOLERANCE,
    )


def train_small(device: str, compile_: Callable[[Any], Any]) -> Arrays:
    """Train a convolution for some updates; return its state, gradients, and losses read late."""
    random = np.random.Generator(np.random.Philox(0))
    network = Conv(IMAGES[1], MAPS[1], 3, 2)
    shapes = {name: x.shape for name, x in nn.named_parameters(network)}
    drawn = {name: random.uniform(-1, 1, shape) for name, shape in shapes.items()}
    nn.load_state_arrays(network, {**nn.state_arrays(network), **drawn})
    network = nn.place(network, device, "float32")
    weights = dict(nn.named_parameters(network))
    optimizer = optim.SGD([(weights, 0.0)])
    forward, loss = compile_(network), compile_(cost)
    terms: list[LossTerms] = []
    found: dict[str, np.ndarray] = {}
    for update in range(GRAPH_UPDATES):
        for size in range(1, PASSES + 1):
            images, factors = (
                ops.tensor(random.uniform(0, most, shape).astype(np.float32), device)
                for most, shape in ((1, IMAGES), (size, MAPS))
            )
            stage = StageTimer(device)
            terms.append(autograd.value_and_backward(forward, loss, images, factors, stage))
        for name, x in weights.items():
            assert x.grad is not None
            found[f"gradient {update} of {name}"] = ops.to_numpy(x.grad)
        optimizer.step([0.1], 0.0)
        optimizer.zero_grad()
    losses = np.array([float(ops.to_numpy(x.by_name["trial"])) for x in terms])
    return {**found, **nn.state_arrays(network), "losses": losses}


def cost(maps: Tensor, factors: Tensor) -> LossTerms:
    """Return the weighted mean of a sigmoid, and its square as the total."""
    mean = ops.mean(ops.sigmoid(maps) * factors)
    return LossTerms({"trial": mean}, mean * mean)
