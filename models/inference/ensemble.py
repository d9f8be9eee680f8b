"""Several models as one: all predict in the same images, and NMS chooses among all their boxes.

Before: `predictor.py` makes the members. After: whoever takes a `Predictor`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.words import count
from models.inference.protocol import Predictor
from utils.errors import UserError


class Ensemble:
    """Models of one task and equally many classes, of any sizes and strides.

    Attributes:
        head: of the first member; it finishes what all of them predict.
    """

    def __init__(self, members: Sequence[Predictor], names: Sequence[str]) -> None:
        """Join members; names are their weights, for messages.

        Raises:
            UserError: they differ in task or number of classes, or their rows cannot be joined.
        """
        self.members, self.names = tuple(members), tuple(names)
        self.head = members[0].head
        self.stride = math.lcm(*(member.stride for member in members))
        self.takes_arrays = all(member.takes_arrays for member in members)
        for member, name in zip(members[1:], names[1:], strict=True):
            self._require_joinable(member, name)
        self.fixed_size = self._common_size()

    def _require_joinable(self, member: Predictor, name: str) -> None:
        kind, classes, task = type(self.head), self.head.num_classes, self.head.task.name
        if not member.head.joins_models or type(member.head) is not kind:
            raise UserError(
                f"--weights {name}: models to {member.head.task.name} cannot detect together with "
                f"{self.names[0]}, which is to {task}; give one file, or several of a task whose "
                "boxes can be put together"
            )
        if member.head.num_classes != classes:
            raise UserError(
                f"--weights {name}: {count(member.head.num_classes, 'class', 'classes')}, "
                f"{self.names[0]} has {classes}; weights that detect together need the same number"
            )

    def _common_size(self) -> tuple[int, int] | None:
        """Return the size that members need; UserError where two need different ones."""
        common: tuple[int, int] | None = None
        for member, name in zip(self.members, self.names, strict=True):
            size = member.fixed_size
            if size is None:
                continue
            if size != (common or size) or any(side % self.stride for side in size):
                raise UserError(
                    f"--weights {name}: it takes only images of {size[0]} x {size[1]} px, which "
                    f"do not fit {self.names[0]} and the others; files that detect together need "
                    "one size; export.py --dynamic leaves it free"
                )
            common = size
        return common

    def __call__(self, images: Any) -> list[Any]:
        return [member(images) for member in self.members]

    def decode_above(self, raw: Sequence[Any], confidence_threshold: float) -> list[np.ndarray]:
        """Return of each image the rows of all members, in their order."""
        rows = [
            member.decode_above(predicted, confidence_threshold)
            for member, predicted in zip(self.members, raw, strict=True)
        ]
        return [np.concatenate(image) for image in zip(*rows, strict=True)]

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Raise UserError that names the weights for which the images are too much."""
        for member, name in zip(self.members, self.names, strict=True):
            try:
                member.require_memory(shape, trains)
            except UserError as error:
                raise UserError(f"--weights {name}: {error}") from error
