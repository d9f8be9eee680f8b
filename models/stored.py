"""Build the model described in a weights file, after checking it against the file's arrays.

Otherwise a description of a few bytes could build a model that fills the memory.
"""

from collections.abc import Mapping

import numpy as np

from duet.backend import nn
from duet.backend.checks import as_float32
from duet.models.blocks.yolov5 import Conv
from duet.models.detector import Detector
from duet.models.graph import ModelSpec, parse_model, plan_layers
from duet.utils.errors import UserError, brief
from duet.utils.files.json_files import Document
from duet.utils.weights.checkpoint import Checkpoint
from duet.utils.weights.load import model_document

Arrays = Mapping[str, np.ndarray]


def stored_spec(document: Document, arrays: Arrays) -> ModelSpec:
    """Return the checked model if its layers match the sizes of the arrays.

    Raises:
        UserError: the description is rejected by `models/graph.py` or does not match the arrays;
            the message names the layer.
    """
    spec = parse_model(document)
    stored: dict[str, int] = {}  # elements in arrays model.LAYER.*, as in `LayerPlan.numbers`
    for name, array in arrays.items():
        layer_name = name.removeprefix("model.").partition(".")[0]
        stored[layer_name] = stored.get(layer_name, 0) + (array.size if array.ndim else 0)
    for index, (layer, plan) in enumerate(zip(spec.layers, plan_layers(spec), strict=True)):
        found = stored.get(str(index), 0)
        if plan.numbers != found:
            raise UserError(
                f"layer {index}, {layer.block} {brief(list(layer.args))}, needs {plan.numbers:,} "
                f"weights, but the file has {found:,}"
            )
    return spec


def spec_of_weights(weights: Checkpoint) -> ModelSpec:
    """Return the checked model of weights; UserError if it cannot be built."""
    document = model_document(weights)
    try:
        return stored_spec(document, weights.ema)
    except UserError as error:
        named = f"--weights {weights.path}".strip()
        raise UserError(f"{named}: the model cannot be built: {error}") from error


def detector_of_weights(weights: Checkpoint) -> Detector:
    """Build the model of weights with its EMA; UserError if it cannot be built."""
    model, named = Detector(spec_of_weights(weights)), f"--weights {weights.path}".strip()
    try:
        nn.load_state_arrays(model, weights.ema)
    except ValueError as error:
        raise UserError(f"{named}: the model cannot be built: {error}") from error
    strides, found = weights.header.settings.get("strides"), list(model.head.strides)
    if strides and strides != found:
        raise UserError(f"{named}: the file has strides {brief(strides)}, the model {found}")
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
    """Fold each `Conv`'s BatchNorm into its convolution, which gets a bias.

    Evaluation results are the same up to rounding; the model can no longer be trained. Layers
    without BatchNorm, or already folded, are unchanged.

    Args:
        model: model on the CPU.
    """
    for part in model.modules():
        if isinstance(part, Conv) and "running_var" in nn.state_arrays(part.bn):
            _fold(part)


def _fold(part: Conv) -> None:
    weight, norm = nn.state_arrays(part.conv)["weight"], nn.state_arrays(part.bn)
    with np.errstate(all="ignore"):  # non-finite weights make BatchNorm's output non-finite anyway
        variance = norm["running_var"].astype(np.float64) + as_float32(part.eps)
        factor = norm["weight"] / np.sqrt(variance)
        folded = {
            "weight": (weight * factor[:, None, None, None]).astype(np.float32),
            "bias": (norm["bias"] - norm["running_mean"] * factor).astype(np.float32),
        }
    convolution = nn.Conv2d(*part.arguments, groups=part.groups, bias=True)
    nn.load_state_arrays(convolution, folded)
    part.conv, part.bn = convolution, nn.Sequential()
