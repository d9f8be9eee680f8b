"""The model that a weights file describes, compared with its arrays before it is made.

A description of a few bytes could otherwise make a model that fills the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from duet.backend import nn
from duet.backend.checks import as_float32
from duet.models.blocks.conv import Conv
from duet.models.detector import Detector
from duet.models.graph import ModelSpec, parse_model, plan_layers
from duet.utils.errors import UserError, brief
from duet.utils.weights.checkpoint import Checkpoint
from duet.utils.weights.load import model_document

Arrays = Mapping[str, np.ndarray]


def stored_spec(document: Mapping[str, Any], arrays: Arrays) -> ModelSpec:
    """Return the checked model of a description whose layers take as many numbers as there are.

    Raises:
        UserError: a description that `models/graph.py` refuses, or one of another model than that
            of the arrays; it names the layer.
    """
    spec = parse_model(document)
    stored: dict[str, int] = {}  # numbers in the arrays model.LAYER.REST, as `LayerPlan.numbers`
    for name, array in arrays.items():
        layer_name = name.removeprefix("model.").partition(".")[0]
        stored[layer_name] = stored.get(layer_name, 0) + (array.size if array.ndim else 0)
    for index, (layer, plan) in enumerate(zip(spec.layers, plan_layers(spec), strict=True)):
        found = stored.get(str(index), 0)
        if plan.numbers != found:
            raise UserError(
                f"layer {index}, {layer.block} {brief(list(layer.args))}, takes {plan.numbers:,} "
                f"numbers, and the file has {found:,} for it"
            )
    return spec


def spec_of_weights(weights: Checkpoint) -> ModelSpec:
    """Return the checked model of weights; UserError says why it cannot be built here."""
    document = model_document(weights)
    try:
        return stored_spec(document, weights.ema)
    except UserError as error:
        named = f"--weights {weights.path}".strip()
        raise UserError(f"{named}: their model cannot be built here: {error}") from error


def detector_of_weights(weights: Checkpoint) -> Detector:
    """Build the model of weights with its EMA; UserError says why it cannot be built here."""
    model, named = Detector(spec_of_weights(weights)), f"--weights {weights.path}".strip()
    try:
        nn.load_state_arrays(model, weights.ema)
    except ValueError as error:
        raise UserError(f"{named}: their model cannot be built here: {error}") from error
    strides, found = weights.header.settings.get("strides"), list(model.head.strides)
    if strides and strides != found:
        raise UserError(f"{named}: strides {brief(strides)}, here {found}")
    return model


def load_detector(weights: Checkpoint, device: str, fold: bool = False) -> Detector:
    """Build the model of weights with its EMA, in evaluation mode on a device.

    fold: fold BatchNorm into the convolutions. Errors as in `detector_of_weights`.
    """
    model = detector_of_weights(weights)
    if fold:
        fold_batch_norm(model)
    detector: Detector = nn.place(model, device, "float32").eval()
    return detector


def fold_batch_norm(model: nn.Module) -> None:
    """Make one convolution with a bias of each `Conv`'s convolution and BatchNorm.

    In evaluation the values stay the same to rounding; training is no longer possible. What has no
    BatchNorm, or had it folded before, stays as it is.

    Args:
        model: on the CPU.
    """
    for part in model.modules():
        if isinstance(part, Conv) and "running_var" in nn.state_arrays(part.bn):
            _fold(part)


def _fold(part: Conv) -> None:
    weight, norm = nn.state_arrays(part.conv)["weight"], nn.state_arrays(part.bn)
    with np.errstate(all="ignore"):  # where weights are no numbers, nor is what BatchNorm returns
        variance = norm["running_var"].astype(np.float64) + as_float32(part.eps)
        factor = norm["weight"] / np.sqrt(variance)
        folded = {
            "weight": (weight * factor[:, None, None, None]).astype(np.float32),
            "bias": (norm["bias"] - norm["running_mean"] * factor).astype(np.float32),
        }
    convolution = nn.Conv2d(*part.arguments, bias=True)
    nn.load_state_arrays(convolution, folded)
    part.conv, part.bn = convolution, nn.Sequential()
