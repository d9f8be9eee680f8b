"""Which optimizer updates which parameters; `state.py::build_state` before, `train_step` after."""

from __future__ import annotations

from backend import nn, optim
from backend.contract import Optim, Optimizer, Tensor
from models.detector import Detector
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import TrainConfig
from utils.errors import UserError


def build_optimizer(
    config: TrainConfig,
    hyp: Hyperparameters,
    groups: list[tuple[dict[str, Tensor], float]],
    optimizers: Optim = optim,
) -> Optimizer:
    """Return the optimizer of --optimizer; UserError for a momentum that cannot be Adam's beta1."""
    if config.optimizer == "SGD":
        return optimizers.SGD(groups)
    for name in ("momentum", "warmup_momentum"):
        if getattr(hyp, name) >= 1:
            raise UserError(
                f"{name}: {getattr(hyp, name)} in --hyp is beta1 of {config.optimizer}, which "
                "must be below 1; the public value is 0.937"
            )
    return getattr(optimizers, config.optimizer)(groups)


def parameter_groups(model: Detector, weight_decay: float) -> list[tuple[dict[str, Tensor], float]]:
    """Return the three public groups: biases, convolution weights (decayed), BatchNorm weights.

    Frozen parameters are in none of them.
    """
    biases: dict[str, Tensor] = {}
    weights: dict[str, Tensor] = {}
    norms: dict[str, Tensor] = {}
    for name, parameter in nn.named_parameters(model):
        if not parameter.requires_grad:
            continue
        group = biases if name.endswith(".bias") else weights if parameter.ndim > 1 else norms
        group[name] = parameter
    return [(biases, 0.0), (weights, weight_decay), (norms, 0.0)]
