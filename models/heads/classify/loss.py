"""What the logits of images cost: cross-entropy, with smoothed labels if asked for.

Before: `head.py` (logits). After: the training step. Source of the smoothing: Szegedy et al. 2016,
arXiv:1512.00567, section 7.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from backend import ops
from backend.contract import Tensor
from models.heads.base import Loss, LossTerms, WholeBatch
from models.heads.parts import BatchParts, batch_parts
from utils.data.loading.batch import Targets

# What a total is the mean over: so many images, in one batch or in several that are added up
# before an update. It is then that of the public recipe, whose batch has as many.
NOMINAL_BATCH = 64
MOST_SHAPES = 2  # of a compiled loss: whole batches, and the smaller last one


class ClassificationLoss(Loss):
    """Cross-entropy of one class an image.

    Args:
        label_smoothing: the part of an image's target that all classes share alike, 0 to 1.
    """

    means: Mapping[str, str] = {}

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing
        self._cost: Callable[..., LossTerms] = _cost

    def compiled(
        self, compile_: Callable[[Callable[..., Any], int], Callable[..., Any]]
    ) -> ClassificationLoss:
        loss = copy.copy(self)
        loss._cost = compile_(_cost, MOST_SHAPES)
        return loss

    def __call__(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None = None
    ) -> LossTerms:
        """Return the cost of a batch, or of a piece of it.

        Args:
            raw: ((B, C),) logits.
            targets: one of each image; one without costs nothing.
            whole: of which they are a piece; None for all of it.
        """
        (logits,) = raw
        dtype, device = ops.dtype_of(logits), ops.device_of(logits)
        own = [logits.shape[0]]
        all_pieces = own if whole is None else [whole.num_images]
        wanted = self._wanted(targets, *logits.shape).astype(dtype)
        parts = batch_parts(own, all_pieces, whole, dtype, device)
        cost = self._cost if own[0] else _cost  # nothing is compiled for no images
        return cost(logits, ops.tensor(wanted, device), parts)

    def end_batch(self) -> None:
        """Learn nothing: each batch costs what it costs."""

    def _wanted(self, targets: Targets, num_images: int, num_classes: int) -> np.ndarray:
        """Return how probable each class should be, (B, C) float64."""
        rest = self.label_smoothing / num_classes
        wanted = np.zeros((num_images, num_classes))
        wanted[targets.image_index] = rest
        wanted[targets.image_index, targets.class_index] += 1 - self.label_smoothing
        return wanted


def _cost(logits: Tensor, wanted: Tensor, parts: BatchParts | None) -> LossTerms:
    """Return the mean over the batch, of which these (B, C) are a part."""
    images = logits.shape[0]
    mean = ops.sum(ops.log_softmax(logits) * wanted) * (-1.0 / max(images, 1))
    if parts is not None:
        mean = mean * parts.images
    total = mean * ((images if parts is None else parts.total) * (1.0 / NOMINAL_BATCH))
    return LossTerms({"classification": mean}, total)
