"""Weights -> a predictor: one model, one with augmentation, or several together."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from backend import nn
from backend.checks import as_float32
from backend.processes import this_process
from models.blocks.conv import Conv
from models.detector import Detector
from models.inference.exported import ExportedPredictor
from models.inference.image_detector import Predictor
from models.inference.predictors import Augmented, Ensemble, HalfPrecision, why_not_half
from models.stored import detector_of_weights
from utils.cli.detection_config import DetectionConfig
from utils.cli.run_config import MAX_IMAGE_SIZE
from utils.detect.config import DetectConfig
from utils.detect.tracker import needed_threshold
from utils.errors import UserError, brief
from utils.evaluation.nms import SuppressionSettings
from utils.tasks.table import Task
from utils.text import printable
from utils.weights.checkpoint import Checkpoint
from utils.weights.detecting import ExportedWeights, Weights

MOST_NAMES = 3  # of classes, in a message
AnyConfig = TypeVar("AnyConfig", bound=DetectionConfig)

log = logging.getLogger("models")


def make_predictor(
    weights: Sequence[Weights],
    device: str,
    augment: bool = False,
    half: bool = False,
    fold: bool = True,
) -> Predictor:
    """Build the EMA of each checkpoint in evaluation mode on a device, and join them.

    An exported file computes where its runtime does, in the precision that it was exported in.

    Args:
        augment: each model sees an image several times (`predictors.py`).
        half: compute in half precision; if the device or the backend has none, a line says so.
        fold: fold BatchNorm into the convolutions; results differ by rounding.

    Raises:
        UserError: weights without a model, one that this project cannot build as it was, or models
            that cannot detect together.
    """
    float32_because = why_not_half(device) if half else ""
    members: list[Predictor] = []
    for one in weights:
        if isinstance(one, ExportedWeights):
            members.append(ExportedPredictor(one.runtime, one.path))
            _log("%s runs in %s", one.path, one.runtime.name, level=logging.INFO)
            if half:
                precision = one.runtime.metadata.precision
                _log("--half: %s computes in %s, as it was exported", one.path, precision)
            continue
        member: Predictor = load_detector(one, device, fold)
        if half and not float32_because:
            member = HalfPrecision(member, device)
        members.append(member)
    if float32_because and any(isinstance(one, Checkpoint) for one in weights):
        _log("--half: %s", float32_because)
    predictor = members[0]
    if len(members) > 1:
        predictor = Ensemble(members, [one.path for one in weights])
        _warn_of_other_names(weights)
    return augmented(predictor) if augment else predictor


def _log(text: str, *given: str, level: int = logging.WARNING) -> None:
    """Log a line, only on the first rank."""
    if this_process().is_main:
        log.log(level, text, *map(printable, given))


def augmented(predictor: Predictor) -> Predictor:
    """Return a predictor of the same models, each of which sees an image several times."""
    if isinstance(predictor, Ensemble):
        return Ensemble(list(map(augmented, predictor.members)), predictor.names)
    if isinstance(predictor, ExportedPredictor):
        raise UserError(
            f"--augment: {predictor.path} is an exported file, which returns no single maps to "
            "choose from; leave it out, or give the weights that the file was exported from"
        )
    return Augmented(predictor)


def load_detector(checkpoint: Checkpoint, device: str, fold: bool = False) -> Detector:
    """Build the EMA of a checkpoint, in evaluation mode on a device; errors as above."""
    model = detector_of_weights(checkpoint)
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


def _warn_of_other_names(weights: Sequence[Weights]) -> None:
    """Warn of weights whose classes have other names than those of the first, which count."""
    first = weights[0]
    for other in weights[1:]:
        pairs = zip(trained_names(other), trained_names(first), strict=False)
        different = [f"{brief(name)} for {brief(ours)}" for name, ours in pairs if name != ours]
        if different:
            text = "--weights %s has other class names than %s, whose names are used: %s"
            _log(text, str(other.path), str(first.path), ", ".join(different[:MOST_NAMES]))


def trained_names(weights: Weights) -> tuple[str, ...]:
    """Return the class names that are stored with weights."""
    if isinstance(weights, ExportedWeights):
        return weights.runtime.metadata.class_names
    return weights.header.class_names


def class_names_of(weights: Weights, num_classes: int) -> tuple[str, ...]:
    """Return the name of each class that the weights predict; class5 where they have no name."""
    names = trained_names(weights)
    return (*names, *(f"class{number}" for number in range(len(names), num_classes)))


def suppression_settings(config: DetectionConfig, multi_label: bool) -> SuppressionSettings:
    """Return the flags that say what counts as found.

    Args:
        multi_label: a box may be found once for each of its classes, as a metric wants it.
    """
    names = {field.name for field in dataclasses.fields(SuppressionSettings)} - {"multi_label"}
    values = {name: getattr(config, name) for name in names}
    if isinstance(config, DetectConfig) and config.track:
        values["confidence_threshold"] = needed_threshold(config.confidence_threshold)
    return SuppressionSettings(multi_label=multi_label, **values)


def with_size(config: AnyConfig, task: Task, weights: Sequence[Weights]) -> AnyConfig:
    """Return flags with the size of the task's images where --img was left out."""
    if config.is_size_given:
        return config
    size = usual_size(task, weights[0], config.image_size)
    return dataclasses.replace(config, image_size=size, is_size_given=True)


def usual_size(task: Task, weights: Weights, otherwise: int) -> int:
    """Return the long side of the images that weights of a task are used with: of a task that has
    its own, the size of their training where that is known.
    """
    if "image_size" not in task.defaults:
        return otherwise
    if isinstance(weights, ExportedWeights):
        return max(weights.runtime.metadata.image_size)
    trained = weights.header.settings.get("image_size")
    if isinstance(trained, int) and 0 < trained <= MAX_IMAGE_SIZE:
        return trained
    return int(task.defaults["image_size"])
