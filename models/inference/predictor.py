"""Build a predictor from weights: one model, one with augmentation, or an ensemble."""

import functools
import logging
import math
from collections.abc import Sequence

from duet.backend.processes import this_process
from duet.models.detector import require_image_size
from duet.models.inference.classes import are_placeholders
from duet.models.inference.predictors import (
    Augmented,
    Ensemble,
    HalfPrecision,
    Predictor,
    why_not_half,
)
from duet.models.stored import load_detector
from duet.utils.errors import UserError, brief
from duet.utils.optional import require_wing
from duet.utils.text import printable
from duet.utils.weights.checkpoint import Checkpoint
from duet.utils.weights.load import ExportedWeights
from duet.utils.weights.load import Weights as Weights

# Modules with a function `predictor_of` for weights that are not checkpoints.
WINGS = ("duet.models.export.exported",)
MOST_NAMES = 3  # class names in a message
USUAL_SIZE = 640  # pixels; as in the public YOLOv5

log = logging.getLogger("models")


def make_predictor(
    weights: Sequence[Weights],
    device: str,
    augment: bool = False,
    half: bool = False,
    fold: bool = True,
) -> Predictor:
    """Build each checkpoint's EMA model in evaluation mode on a device, and combine them.

    Exported files run in their runtime, in the precision they were exported with.

    Args:
        augment: test-time augmentation (`predictors.py`).
        half: compute in half precision; log a warning if the device or backend does not support it.
        fold: fold BatchNorm into the convolutions; results differ by rounding.

    Raises:
        UserError: weights without a model, a model that cannot be built, or models that cannot be
            combined.
    """
    reason = why_not_half(device) if half else ""
    if reason and any(isinstance(one, Checkpoint) for one in weights):
        log_once("--half: %s", reason)
    members = [_member(one, device, half, fold) for one in weights]
    predictor = members[0]
    if len(members) > 1:
        predictor = Ensemble(members, [one.path for one in weights])
        _require_same_names(weights)
    return augmented(predictor) if augment else predictor


def _member(weights: Weights, device: str, half: bool, fold: bool) -> Predictor:
    if isinstance(weights, Checkpoint):
        model = load_detector(weights, device, fold)
        return HalfPrecision(model, device) if half and not why_not_half(device) else model
    wing = require_wing(WINGS, f"--weights {weights.path}")
    predictor: Predictor = wing.predictor_of(weights, half)
    return predictor


def log_once(text: str, *given: str, level: int = logging.WARNING) -> None:
    if this_process().is_main:
        log.log(level, text, *map(printable, given))


def augmented(predictor: Predictor) -> Predictor:
    if isinstance(predictor, Ensemble):
        return Ensemble(list(map(augmented, predictor.members)), predictor.names)
    return Augmented(predictor)


def _require_same_names(weights: Sequence[Weights]) -> None:
    """Raise UserError for weights that call a class otherwise than the first, whose names count."""
    first = weights[0]
    for other in weights[1:]:
        if are_placeholders(other.class_names) or are_placeholders(first.class_names):
            continue
        pairs = zip(other.class_names, first.class_names, strict=False)
        different = [f"{brief(name)} for {brief(ours)}" for name, ours in pairs if name != ours]
        if different:
            raise UserError(
                f"--weights {other.path}: class names differ from those of {first.path}: "
                f"{', '.join(different[:MOST_NAMES])}; files that detect together need the same "
                "classes in the same order"
            )


def class_names_of(weights: Weights, num_classes: int) -> tuple[str, ...]:
    """Return the names of all classes of the weights; class5, for example, if unnamed."""
    names = weights.class_names
    return (*names, *(f"class{number}" for number in range(len(names), num_classes)))


def input_size(given: int | None, predictor: Predictor, weights: Sequence[Weights]) -> int:
    """Return the long side of the network input, pixels; without --img, log where it comes from.

    Args:
        given: --img; None for the fixed size of an exported file, else the training size.

    Raises:
        UserError: --img is not a multiple of the stride, or not the fixed size.
    """
    if given is None:
        size, source = _usual_size(predictor, weights[0])
        log_once("images at %s px, %s", str(size), source, level=logging.INFO)
    else:
        size = given
        _require_accepted(size, predictor)
    warn_of_other_size(size, weights)
    return size


def _usual_size(predictor: Predictor, weights: Weights) -> tuple[int, str]:
    """Return the size without --img, and where it comes from."""
    if predictor.fixed_size is not None:
        return max(predictor.fixed_size), "as the exported file requires"
    size, source = weights.trained_size, "the training size"
    if size is None and isinstance(weights, ExportedWeights):
        size, source = max(weights.runtime.metadata.image_size), "the default of the exported file"
    if size is None:
        size = int(predictor.head.task.defaults.get("image_size", USUAL_SIZE))
        source = "the default, because the weights do not store their training size"
    return math.ceil(size / predictor.stride) * predictor.stride, source


def _require_accepted(size: int, predictor: Predictor) -> None:
    """Raise UserError for a --img that the network does not take."""
    if predictor.fixed_size is None:
        return require_image_size(size, predictor.stride, trains=False)
    height, width = predictor.fixed_size
    if size != max(height, width):
        raise UserError(
            f"--img {size}: the exported file accepts only images of {height} x {width} px "
            "(height x width); omit --img, or export with --dynamic"
        )


def warn_of_other_size(size: int, weights: Sequence[Weights]) -> None:
    """Warn, once for a file and a size, if a model was trained at a very different size."""
    for one in weights:
        trained = one.trained_size
        if trained is not None and not trained / 2 <= size <= trained * 2:
            _warn_of_size(size, trained, str(one.path))


@functools.cache  # a program may detect in many images
def _warn_of_size(size: int, trained: int, path: str) -> None:
    text = "%s: trained at %s px, used at %s px: expect worse results"
    log_once(text, path, str(trained), str(size))
