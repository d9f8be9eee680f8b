"""Parameter groups, frozen layers and the optimizer.

As in the public YOLOv5, BatchNorm layers frozen by --freeze keep updating their running statistics:
the whole model is in training mode.
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
    """Return the optimizer for --optimizer; UserError if momentum is invalid as Adam's beta1.

    together: update all tensors in one pass.
    """
    optimizers = multi_tensor if together else optim
    if name == "SGD":
        return optimizers.SGD(groups)
    for key in ("momentum", "warmup_momentum"):
        if getattr(hyp, key) >= 1:
            raise UserError(
                f"{key}: {getattr(hyp, key)} in --hyp is used as beta1 of {name} and must be below "
                "1; the default is 0.937"
            )
    return getattr(optimizers, name)(groups)


def parameter_groups(model: Any, weight_decay: float) -> Groups:
    """Return the three groups of the recipe: biases, decayed weights, and BatchNorm weights.

    Frozen parameters are excluded.
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
    """Freeze the parameters named by --freeze; log their number."""
    parameters = dict(nn.named_parameters(model))
    frozen = frozen_names(list(parameters), num_layers, freeze)
    if len(frozen) == len(parameters):
        raise UserError(f"--freeze {' '.join(freeze)} freezes all layers; freeze fewer")
    if frozen:
        nn.set_trainable([parameters[name] for name in frozen], False)
        log.info("frozen: %d of %d parameters (--freeze)", len(frozen), len(parameters))


def frozen_names(names: Sequence[str], num_layers: int, freeze: Sequence[str]) -> list[str]:
    """Return the parameters named by --freeze, in order.

    Args:
        names: dotted names of all parameters, such as "model.0.conv.weight".
        num_layers: number of the model's layers.
        freeze: a single number N for the first N layers, several numbers for the layers at these
            indices; or names of layers or their parts, such as "model.24.m".

    Raises:
        UserError: an index out of range or an unknown name; the message lists the valid ones.
    """
    prefixes = []
    for entry in freeze:
        if not entry.isdecimal():
            if not any(f"{name}.".startswith(f"{entry}.") for name in names):
                known = ", ".join(dict.fromkeys(name.rpartition(".")[0] for name in names))
                raise UserError(f"--freeze {entry} matches no parameter; accepted: {known}")
            prefixes.append(entry)
            continue
        if int(entry) > (num_layers if len(freeze) == 1 else num_layers - 1):
            raise UserError(f"--freeze {entry}: the model has layers 0 to {num_layers - 1}")
        layers = range(int(entry)) if len(freeze) == 1 else [int(entry)]
        prefixes += [f"model.{index}" for index in layers]
    return [name for name in names if any(f"{name}.".startswith(f"{x}.") for x in prefixes)]
