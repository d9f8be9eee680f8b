"""Test-time augmentation: a model sees each image three times, in other sizes and mirrored.

Before: `predictor.py` wraps a model in it. After: `ensemble.py`, or whoever takes a `Predictor`.
Source: scales, mirroring and unused maps are those of the public YOLOv5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from backend import ops
from backend.contract import Tensor
from models.heads.base import BoxHead
from models.inference.protocol import Predictor
from utils.errors import UserError

FILL = 0.447  # around a scaled image, as the public weights were measured with


class Pass(NamedTuple):
    """How a model sees an image once."""

    scale: float
    mirrored: bool
    unused: Callable[[Sequence[int]], int] | None  # picks the stride of the map without rows


PASSES = (Pass(1.0, False, max), Pass(0.83, True, None), Pass(0.67, False, min))


class Seen(NamedTuple):
    """What a model returned of the same images, pass by pass."""

    maps: tuple[Sequence[Tensor], ...]
    width: int  # of the images


class Augmented:
    """One model that sees each image several times."""

    def __init__(self, model: Predictor) -> None:
        """Raise UserError for a model whose rows cannot be brought back into the image."""
        if not isinstance(model.head, BoxHead):
            raise UserError(
                f"--augment: {type(model.head).__name__} cannot join what it finds in several "
                "sizes of an image; leave it out"
            )
        self.model, self.head, self.stride = model, model.head, model.stride
        self.fixed_size, self.takes_arrays = None, False

    def __call__(self, images: Tensor) -> Seen:
        maps = tuple(self.model(view(images, one, self.stride)) for one in PASSES)
        return Seen(maps, images.shape[3])

    def decode_above(self, raw: Seen, confidence_threshold: float) -> list[np.ndarray]:
        """Return of each image the rows of all passes, in their order, in pixels of the image."""
        passes = []
        for one, maps in zip(PASSES, raw.maps, strict=True):
            levels = used_levels(one, self.head.strides)
            found = self.head.decode_above(maps, confidence_threshold, levels)
            passes.append([brought_back(rows, one, raw.width) for rows in found])
        return [np.concatenate(image) for image in zip(*passes, strict=True)]

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


def used_levels(one: Pass, strides: Sequence[int]) -> list[int]:
    """Return the maps whose rows a pass gives: of a model with one stride, all."""
    unused = one.unused(strides) if one.unused else None
    used = [level for level, stride in enumerate(strides) if stride != unused]
    return used or list(range(len(strides)))


def brought_back(rows: np.ndarray, one: Pass, width: int) -> np.ndarray:
    """Return rows (K, 4 + ...) of a pass as if found in images of this width."""
    boxes_cxcywh = rows[:, :4] / np.float32(one.scale)
    if one.mirrored:
        boxes_cxcywh[:, 0] = width - boxes_cxcywh[:, 0]
    return np.concatenate([boxes_cxcywh, rows[:, 4:]], axis=1)
