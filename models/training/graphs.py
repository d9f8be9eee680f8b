"""Whether a compiled step runs as CUDA graphs: on one GPU, where a trial agrees with the plain way.

A GPU then gets a pass as a few launches, not as one for each kernel. The results of a graph lie in
memory that the next pass overwrites. A trial of a small network, in which losses and gradients
outlive a pass as in a training, proves that none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from backend import autograd, nn, ops, optim
from backend.checks import CPU
from backend.contract import Tensor
from backend.processes import this_process
from models.blocks.conv import Conv
from models.heads.base import LossTerms
from models.proof import find_problem
from utils.cli.train_config import TrainConfig
from utils.report.stage_timer import StageTimer

# A lost loss or gradient is another pass's, or nothing. TF32 rounds to 5e-4.
TOLERANCE = 0.05
# The compiler runs a function as it is, then records it: most of these passes replay it.
UPDATES, PASSES = 3, 2  # of the trial; passes of an update, whose gradients add up
RATE = 0.1
IMAGES, MAPS = (4, 3, 16, 16), (4, 2, 8, 8)


def graph_problem(config: TrainConfig, device: str) -> str:
    """Return why a compiled step does not run as graphs, in words; "" if it does."""
    return refusal(config, device) or trial_problem(device)


def refusal(config: TrainConfig, device: str) -> str:
    """Return why graphs are not tried with these flags on this device; "" if they are."""
    if device == CPU:
        return "the device is a CPU"
    if this_process().world_size > 1:
        return "several processes exchange gradients in the middle of a pass"
    # The compiler takes the tensors of a module for as fixed as weights.
    return "--dropout draws a new tensor for each pass" if config.dropout else ""


def trial_problem(device: str) -> str:
    """Return how a small network trained in graphs differs from the plain one; "" if it does not.

    A driver or compiler that fails is such a problem too.
    """
    in_graphs = partial(autograd.compiled, graphs=True)
    return find_problem(
        lambda: trained(device, in_graphs), lambda: trained(device, lambda x: x), TOLERANCE
    )


class TrialNetwork(nn.Module):
    """Two convolutions with BatchNorm, (B, 3, H, W) -> (B, 2, H / 2, W / 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Conv(3, 8, 3, 2), Conv(8, 2, activates=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.first(images))

    def draw(self, random: np.random.Generator) -> None:
        """Draw its parameters."""
        shapes = {name: x.shape for name, x in nn.named_parameters(self)}
        drawn = {name: random.uniform(-1, 1, shape) for name, shape in shapes.items()}
        nn.load_state_arrays(self, {**nn.state_arrays(self), **drawn})


def trained(
    device: str, compile_: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Mapping[str, np.ndarray]:
    """Train the network for some updates; return its state, the gradients of each update, and the
    losses, read at the end.
    """
    random = np.random.Generator(np.random.Philox(0))
    network = TrialNetwork()
    network.draw(random)
    network = nn.place(network, device, "float32")
    weights = dict(nn.named_parameters(network))
    optimizer = optim.SGD([(weights, 0.0)])
    forward, loss = compile_(network), compile_(cost)
    terms: list[LossTerms] = []
    found: dict[str, np.ndarray] = {}
    for update in range(UPDATES):
        for size in range(1, PASSES + 1):
            images, factors = (
                ops.tensor(random.uniform(0, most, shape).astype(np.float32), device)
                for most, shape in ((1, IMAGES), (size, MAPS))
            )
            stage = StageTimer(device)
            terms.append(autograd.value_and_backward(forward, loss, images, factors, stage))
        for name, x in weights.items():
            if x.grad is not None:
                found[f"gradient {update} of {name}"] = ops.to_numpy(x.grad)
        optimizer.step([RATE], 0.0)
        optimizer.zero_grad()
    losses = np.array([float(ops.to_numpy(x.by_name["trial"])) for x in terms])
    return {**found, **nn.state_arrays(network), "losses": losses}


def cost(maps: Tensor, factors: Tensor) -> LossTerms:
    """Return the weighted mean of a sigmoid, and its square as the total."""
    mean = ops.mean(ops.sigmoid(maps) * factors)
    return LossTerms({"trial": mean}, mean * mean)
