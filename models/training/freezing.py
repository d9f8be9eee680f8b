"""Which parameters --freeze holds fixed: the model's layers before, `state.py::build_state` after.

BatchNorm layers that are frozen go on gathering their running statistics, as in the public
YOLOv5: `detector.py` is in training mode as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from backend import nn
from models.detector import Detector
from utils.errors import UserError

log = logging.getLogger("train")


def freeze_layers(model: Detector, freeze: Sequence[str]) -> None:
    """Make the parameters that the entries of --freeze name untrainable, and say how many."""
    parameters = dict(nn.named_parameters(model))
    frozen = frozen_names(list(parameters), len(model.spec.layers), freeze)
    if len(frozen) == len(parameters):
        raise UserError(f"--freeze {' '.join(freeze)} leaves nothing to train; freeze fewer layers")
    if frozen:
        nn.set_trainable([parameters[name] for name in frozen], False)
        log.info("frozen: %d of %d parameters (--freeze)", len(frozen), len(parameters))


def frozen_names(names: Sequence[str], num_layers: int, freeze: Sequence[str]) -> list[str]:
    """Return the parameters that --freeze names, in their order.

    Args:
        names: dotted names of all parameters, such as "model.0.conv.weight".
        num_layers: the model's.
        freeze: one number: so many of the first layers; several numbers: the layers at these
            positions; also names of layers or parts of them, such as "model.24.m".

    Raises:
        UserError: a number outside the model, a name of nothing; says what there is.
    """
    prefixes = _prefixes(num_layers, freeze)
    for prefix in prefixes:
        # A layer may lack parameters (Upsample, Concat); a name that was written out may not.
        if prefix in freeze and not any(_belongs(name, prefix) for name in names):
            raise UserError(f"--freeze {prefix} names nothing; {_known_names(names, prefix)}")
    return [name for name in names if any(_belongs(name, prefix) for prefix in prefixes)]


def _prefixes(num_layers: int, freeze: Sequence[str]) -> list[str]:
    """Return the entries as the dotted beginnings of names."""
    for entry in freeze:
        limit = num_layers if len(freeze) == 1 else num_layers - 1
        if entry.isdecimal() and int(entry) > limit:
            raise UserError(f"--freeze {entry}: the model's layers are 0 to {num_layers - 1}")
    if len(freeze) == 1 and freeze[0].isdecimal():
        return [f"model.{index}" for index in range(int(freeze[0]))]
    return [f"model.{entry}" if entry.isdecimal() else entry for entry in freeze]


def _belongs(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def _known_names(names: Sequence[str], wrong: str) -> str:
    """Return what exists at the depth where a wrong name stops being right."""
    known = wrong
    while known and not any(_belongs(name, known) for name in names):
        known = known.rpartition(".")[0]
    depth = known.count(".") + 2 if known else 2
    inside = [name for name in names if not known or _belongs(name, known)]
    choices = dict.fromkeys(".".join(name.split(".")[:depth]) for name in inside)
    return f"there are: {', '.join(choices)}"
