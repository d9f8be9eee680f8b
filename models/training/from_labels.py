"""What a training takes from its labels: anchors, and the weights of unbalanced classes.

Checks and threshold of anchors are the same as in the public YOLOv5. Class weights are those of
Cui et al. 2019, arXiv:1901.05555, class-balanced loss by the effective number of samples.
"""

import dataclasses
import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from duet.models.graph import ModelSpec, parse_model, plan_layers
from duet.utils.cli.hyperparameters import AUTO_WEIGHTS, Hyperparameters
from duet.utils.data.anchors import Fit, fit_anchors, label_sizes, measure_fit
from duet.utils.data.sources.samples import table_of
from duet.utils.errors import UserError
from duet.utils.files.json_files import Document, parse_json
from duet.utils.state.job import Job, TrainData
from duet.utils.text import count, printable

ENOUGH_RECALL = 0.98  # above it, anchors are kept
# COCO at 320 px has 0.962: new anchors under a head trained for the old ones take mAP50-95 of the
# public YOLOv5n from 0.30 to 0.10 even at a learning rate of 1e-8.
ENOUGH_TO_KEEP_HEAD = 0.9
BETA = 0.999  # each further object of a class adds this fraction of what the one before added

log = logging.getLogger("train")


def fit_to_labels(spec: ModelSpec, job: Job) -> ModelSpec:
    """Return the model with anchors fitted to the training labels, the same on all ranks.

    Raises:
        UserError: --noautoanchor conflicts with a request for new anchors.
    """
    fitted, world = "", job.session.world
    if world.process.is_main:  # one process decides, because CPUs may round differently
        fitted = json.dumps(with_anchors(spec, job))
    document = parse_json(world.broadcast_text(fitted))
    return spec if document == spec.document else parse_model(document)


def with_anchors(spec: ModelSpec, job: Job) -> Document:
    """Return the model document with the anchors to train with; unchanged if it has none."""
    document, config, hyp = spec.document, job.config, job.hyp
    if "anchors" not in document:
        return document
    anchors = document["anchors"]
    if not config.no_auto_anchor:
        plans = plan_layers(spec)
        strides = [plans[source].stride for source in spec.layers[-1].sources]
        sizes_wh = label_sizes(job.data.train, config.image_size)
        keeps_head = job.start is not None and bool(hyp.keep_head)
        anchors = choose_anchors(anchors, strides, sizes_wh, hyp, config.seed, keeps_head)
    elif number_to_fit(anchors, hyp):
        raise UserError(
            "--noautoanchor conflicts with the model YAML or the hyper-parameter `anchors`, which "
            "requests new anchors; remove one of them"
        )
    return {**document, "anchors": anchors}


def number_to_fit(anchors: object, hyp: Hyperparameters) -> int:
    """Return the requested number of new anchors per level; 0 to keep the model's.

    Args:
        anchors: value in the model YAML.
    """
    return round(hyp.anchors) or (anchors if isinstance(anchors, int) else 0)


def choose_anchors(
    anchors: Any,
    strides: Sequence[int],
    sizes_wh: np.ndarray,
    hyp: Hyperparameters,
    seed: int,
    keeps_head: bool = False,
) -> object:
    """Return the anchors to train with, in model YAML format, and log the reason.

    Args:
        anchors: the model's: [w, h, w, h, ...] per level, in pixels, or a number of anchors.
        strides: stride of each level.
        sizes_wh: (N, 2) of the training labels, pixels as training sees them.
        keeps_head: the head has learned these anchors: replace them only if they fit far worse.

    Raises:
        UserError: anchors must be fitted, but there are no labels.
    """

    def measure(levels: Sequence[Sequence[float]]) -> Fit:
        return measure_fit(sizes_wh, np.reshape(np.array(levels), (-1, 2)), hyp.anchor_t)

    def fit_new(number: int) -> list[list[float]]:
        """Fit a number of anchors per level; larger ones for larger strides."""
        found = fit_anchors(sizes_wh, number * len(strides), hyp.anchor_t, seed)
        ranks = np.argsort(np.argsort(strides, kind="stable"), kind="stable")
        return found.reshape(len(strides), -1)[ranks].tolist()

    number = number_to_fit(anchors, hyp)
    if not len(sizes_wh):
        if number:
            raise UserError("anchors cannot be fitted: the training images have no labels")
        return anchors
    if number:
        fitted = fit_new(number)
        _log_new(f"fitted {number} per level", measure(fitted), fitted)
        return fitted
    anchors = _in_order(anchors, strides)
    fit = measure(anchors)
    enough = fit.best_possible_recall > (ENOUGH_TO_KEEP_HEAD if keeps_head else ENOUGH_RECALL)
    log.info("anchors: the model's fit %s: %s", "well" if enough else "poorly", describe(fit))
    if enough:
        return anchors
    fitted = fit_new(len(anchors[0]) // 2)
    better = measure(fitted)
    if better.best_possible_recall <= fit.best_possible_recall:
        log.info("anchors: found no better ones; keeping the model's")
        return anchors
    _log_new("replaced with fitted ones", better, fitted)
    return fitted


def describe(fit: Fit) -> str:
    recall = fit.best_possible_recall
    return f"best possible recall {recall:.3f}, {fit.anchors_per_target:.2f} per target"


def _log_new(what: str, fit: Fit, levels: Sequence[Sequence[float]]) -> None:
    log.info("anchors: %s: %s", what, describe(fit))
    for level in levels:
        pairs = zip(level[::2], level[1::2], strict=True)
        log.info("  %s", ", ".join(f"{width:g} x {height:g}" for width, height in pairs))


def _in_order(
    anchors: Sequence[Sequence[float]], strides: Sequence[int]
) -> Sequence[Sequence[float]]:
    """Return anchors ordered so that the coarsest level has the largest."""
    areas = [np.prod(np.reshape(level, (-1, 2)), axis=1).mean() for level in anchors]
    if (areas[-1] - areas[0]) * (strides[-1] - strides[0]) >= 0:
        return anchors
    log.info("anchors: reversed the levels, whose order did not match their strides")
    return anchors[::-1]


def with_class_weights(hyp: Hyperparameters, data: TrainData) -> Hyperparameters:
    """Return the hyper-parameters with a weight per class, or none; log the rarest class's.

    Raises:
        UserError: cls_weights has another number of classes.
    """
    weights, names = hyp.cls_weights, data.class_names
    if not weights:
        return hyp
    numbers = np.bincount(table_of(data.train).class_index, minlength=len(names))
    if weights == AUTO_WEIGHTS:
        weights = effective_weights(numbers)
    elif len(weights) != len(names):
        found, wanted = count(len(weights), "weight"), count(len(names), "class", "classes")
        raise UserError(f"cls_weights: {found} for {wanted}; accepted: one per class, or auto")
    rarest = int(np.where(numbers > 0, numbers, numbers.max(initial=0) + 1).argmin())
    objects = count(int(numbers[rarest]), "object")
    log.info(
        "cls_weights: %s, the rarest class (%s), %.3g; all from %.3g to %.3g",
        printable(names[rarest]), objects, weights[rarest], min(weights), max(weights),
    )  # fmt: skip
    return dataclasses.replace(hyp, cls_weights=weights)


def effective_weights(numbers: np.ndarray) -> tuple[float, ...]:
    """Return the inverse effective number of each class's objects, scaled to a mean of 1.

    Classes without objects are not counted in the mean, and get 1.

    Args:
        numbers: (C,) int64, objects per class.
    """
    found = numbers > 0
    weights = np.where(found, (1 - BETA) / (1 - BETA ** np.maximum(numbers, 1)), 0.0)
    weights[found] /= weights[found].mean() if found.any() else 1.0
    return tuple(np.where(found, weights, 1.0).tolist())
