"""Which parameters are trained, and by which optimizer.

BatchNorm layers that --freeze holds fixed go on gathering their running statistics, as in the
public YOLOv5: `detector.py` is in training mode as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from duet.backend import multi_tensor, nn, optim
from duet.backend.contract import Optimizer, Tensor
from duet.utils.cli.hyperparameters import Hyperparameters
from duet.utils.errors import UserError

Groups = list[tuple[dict[str, Tensor], float]]

log = logging.getLogger("train")


def build_optimizer(
    name: str, groups: Groups, hyp: Hyperparameters, together: bool = False
) -> Optimizer:
    """Return the optimizer of --optimizer; UserError for a momentum that cannot be Adam's beta1.

    together: it updates all tensors in one pass.
    """
    optimizers = multi_tensor if together else optim
    if name == "SGD":
        return optimizers.SGD(groups)
    for key in ("momentum", "warmup_momentum"):
        if getattr(hyp, key) >= 1:
            raise UserError(
                f"{key}: {getattr(hyp, key)} in --hyp is beta1 of {name}, which must be below 1; "
                "the public value is 0.937"
            )
    return getattr(optimizers, name)(groups)


def parameter_groups(model: Any, weight_decay: float) -> Groups:
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


def freeze_layers(model: Any, num_layers: int, freeze: Sequence[str]) -> None:
    """Make the parameters that the entries of --freeze name untrainable; log how many."""
    parameters = dict(nn.named_parameters(model))
    frozen = frozen_names(list(parameters), num_layers, freeze)
    if len(frozen) == len(parameters):
        raise UserError(f"--freeze {' '.join(freeze)} leaves nothing to train; freeze fewer layers")
    if frozen:
        nn.set_trainable([parameters[name] for name in frozen], False)
        log.info("frozen: %d of %d parameters (--freeze)", len(frozen), len(parameters))


def frozen_names(names: Sequence[str], num_layers: int, freeze: Sequence[str]) -> list[str]:
    """Return the parameters that --freeze names, in their order.

    Args:
        names: dotted names of all parameters, such as "model.0.conv.weight".
        num_layers: of the model.
        freeze: one number: so many of the first layers; several numbers: the layers at these
            positions; also names of layers or parts of them, such as "model.24.m".

    Raises:
        UserError: a number outside the model, a name of nothing; it names what there is.
    """
    prefixes = []
    for entry in freeze:
        if not entry.isdecimal():
            if not any(f"{name}.".startswith(f"{entry}.") for name in names):
                known = ", ".join(dict.fromkeys(name.rpartition(".")[0] for name in names))
                raise UserError(f"--freeze {entry} names nothing; there are: {known}")
            prefixes.append(entry)
            continue
        if int(entry) > (num_layers if len(freeze) == 1 else num_layers - 1):
            raise UserError(f"--freeze {entry}: the model's layers are 0 to {num_layers - 1}")
        layers = range(int(entry)) if len(freeze) == 1 else [int(entry)]
        prefixes += [f"model.{index}" for index in layers]
    return [name for name in names if any(f"{name}.".startswith(f"{x}.") for x in prefixes)]
