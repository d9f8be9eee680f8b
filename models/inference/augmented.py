"""Test-time augmentation: a model sees each image several times, in other sizes and mirrored.

Before: `predictor.py` wraps a model in it. After: `ensemble.py`, or whoever takes a `Predictor`.
How often, and what is made of it, its head says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from backend import ops
from backend.contract import Tensor
from models.heads.passes import Pass
from models.inference.protocol import Predictor
from utils.errors import UserError

FILL = 0.447  # around a scaled image, as the public weights were measured with


class Seen(NamedTuple):
    """What a model returned of the same images, pass by pass."""

    maps: tuple[Sequence[Tensor], ...]
    width: int  # of the images


class Augmented:
    """One model that sees each image several times."""

    def __init__(self, model: Predictor) -> None:
        """Raise UserError for a model of a task that finds nothing in several passes."""
        if not model.head.passes:
            raise UserError(
                f"--augment: models to {model.head.task.name} cannot join what they find in "
                "several sizes of an image; leave it out"
            )
        self.model, self.head, self.stride = model, model.head, model.stride
        self.fixed_size, self.takes_arrays = None, False

    def __call__(self, images: Tensor) -> Seen:
        maps = tuple(self.model(view(images, one, self.stride)) for one in self.head.passes)
        return Seen(maps, images.shape[3])

    def decode_above(self, raw: Seen, confidence_threshold: float) -> list[Any]:
        """Return of each image what its head makes of all passes."""
        return self.head.join_passes(raw.maps, raw.width, confidence_threshold)

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Raise UserError as the model does: no pass is larger than the first."""
        self.model.require_memory(shape, trains)


def view(images: Tensor, one: Pass, stride: int) -> Tensor:
    """Return images (B, 3, H, W) as a pass sees them, sides multiples of the stride.

    They are mirrored before they are padded on the right, so that padding is on the right of all.
    """
    if one.mirrored:
        images = ops.flip_columns(images)
    if one.scale == 1:
        return images
    sides = [side * one.scale for side in images.shape[2:]]
    scaled = ops.resize_bilinear(images, *(int(side) for side in sides))
    height, width = (math.ceil(side / stride) * stride for side in sides)
    return ops.pad_to(scaled, height, width, FILL)
