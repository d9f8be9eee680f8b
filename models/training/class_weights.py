"""The weights of unbalanced classes in the classification loss, from hyper-parameter cls_weights.

Source: Cui et al. 2019, arXiv:1901.05555, class-balanced loss by the effective number of samples.
"""

from __future__ import annotations

import dataclasses
import logging

import numpy as np

from duet.utils.cli.hyperparameters import AUTO_WEIGHTS, Hyperparameters
from duet.utils.data.sources.samples import table_of
from duet.utils.errors import UserError
from duet.utils.state.job import Job
from duet.utils.text import count, printable

BETA = 0.999  # each further object of a class adds this fraction of what the one before added

log = logging.getLogger("train")


def with_class_weights(job: Job) -> Hyperparameters:
    """Return the hyper-parameters with a weight per class, or none; log the rarest class's.

    Raises:
        UserError: cls_weights has another number of classes.
    """
    weights, names = job.hyp.cls_weights, job.data.class_names
    if not weights:
        return job.hyp
    numbers = np.bincount(table_of(job.data.train).class_index, minlength=len(names))
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
    return dataclasses.replace(job.hyp, cls_weights=weights)


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
