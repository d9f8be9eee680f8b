"""A model that computes a batch in pieces, if memory does not suffice for all of it.

Before: `models/training/loop.py`, once a step ran out of memory. After: `models/evaluation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backend import ops
from backend.contract import Tensor
from models.inference.protocol import Predictor


class InPieces:
    """One model that sees at most so many images at a time; its maps are those of the batch."""

    def __init__(self, model: Predictor, at_a_time: int) -> None:
        assert at_a_time > 0
        self.model, self.at_a_time = model, at_a_time
        self.head, self.stride, self.fixed_size = model.head, model.stride, model.fixed_size
        self.takes_arrays = model.takes_arrays

    def __call__(self, images: Tensor) -> tuple[Tensor, ...]:
        starts = range(0, max(images.shape[0], 1), self.at_a_time)
        found = [self.model(images[start : start + self.at_a_time]) for start in starts]
        return tuple(ops.cat(maps) for maps in zip(*found, strict=True))

    def decode_above(
        self, raw: tuple[Tensor, ...], confidence_threshold: float
    ) -> list[np.ndarray]:
        return self.model.decode_above(raw, confidence_threshold)

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        self.model.require_memory((min(shape[0], self.at_a_time), *shape[1:]), trains)
