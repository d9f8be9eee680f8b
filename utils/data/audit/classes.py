"""Which classes a dataset and weights share, by name.

Before: the names of both. After: `models/audit.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from backend.words import count
from utils.data.audit.findings import NOTHING
from utils.detections import Detections, GroundTruth
from utils.errors import UserError, brief
from utils.weights.transfer import match_classes

MOST_NAMES = 5  # in a message
Objects = TypeVar("Objects", Detections, GroundTruth)

log = logging.getLogger("audit")


@dataclass(frozen=True, eq=False)
class SharedClasses:
    """The way from the classes of a model to those of a dataset, and back."""

    in_dataset: np.ndarray  # (classes of the model,) int64; NOTHING where the dataset lacks it
    in_model: np.ndarray  # (classes of the dataset,) int64; NOTHING where the model lacks it

    def of_dataset(self, found: Detections) -> Detections:
        """Return detections of shared classes, with the dataset's numbers."""
        return _renumbered(found, self.in_dataset)

    def of_model(self, labels: GroundTruth) -> GroundTruth:
        """Return labels of shared classes, with the model's numbers."""
        return _renumbered(labels, self.in_model)


def _renumbered(objects: Objects, numbers: np.ndarray) -> Objects:
    class_index = numbers[objects.class_index]
    renumbered = objects._replace(class_index=class_index)
    return renumbered.take(np.flatnonzero(class_index != NOTHING))


def share_classes(
    data: str, class_names: Sequence[str], weights: str, known: Sequence[str], num_known: int
) -> SharedClasses:
    """Match classes by name; by number where the weights name none.

    Args:
        data, weights: as the flags name them, for messages.
        class_names: of the dataset.
        known: of the weights, the first of `num_known` classes; () if they name none.

    Raises:
        UserError: nothing is shared, or there are neither names nor as many classes.
    """
    if not known:
        return _by_number(data, len(class_names), weights, num_known)
    pairs = match_classes(class_names, known)
    if not len(pairs.new_index):
        raise UserError(
            f"--data {data} has the classes {brief(list(class_names))}, --weights {weights} "
            f"{brief(list(known))}; none has the same name in both: rename those of the dataset, "
            "or give weights that were trained on it"
        )
    in_dataset, in_model = np.full(num_known, NOTHING), np.full(len(class_names), NOTHING)
    in_dataset[pairs.old_index], in_model[pairs.new_index] = pairs.new_index, pairs.old_index
    unknown = [class_names[index] for index in np.flatnonzero(in_model == NOTHING).tolist()]
    if unknown:
        log.warning(
            "--weights %s: not trained for %s of the dataset, whose labels are not judged: %s%s",
            weights, count(len(unknown), "class", "classes"),
            ", ".join(map(brief, unknown[:MOST_NAMES])),
            ", ..." if len(unknown) > MOST_NAMES else "",
        )  # fmt: skip
    return SharedClasses(in_dataset, in_model)


def _by_number(data: str, num_classes: int, weights: str, num_known: int) -> SharedClasses:
    if num_classes != num_known:
        raise UserError(
            f"--data {data} has {count(num_classes, 'class', 'classes')}, --weights {weights} "
            f"{num_known} without names; they must be equal, or the weights name their classes: "
            "docs/en/weights.md says how to convert them"
        )
    return SharedClasses(np.arange(num_known), np.arange(num_classes))
