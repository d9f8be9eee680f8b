"""The loss of the logits of images: cross-entropy, with smoothed labels if asked for.

Source of the smoothing: Szegedy et al. 2016, arXiv:1512.00567, section 7.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from backend import ops
from backend.contract import Tensor
from backend.processes import this_process
from models.heads.base import Loss, LossTerms, WholeBatch, batch_parts, loss_dtype
from utils.data.loading.batch import Targets

MOST_SHAPES = 2  # of a compiled loss: whole batches, and the smaller last one


class ClassificationLoss(Loss):
    """Cross-entropy of one class per image.

    Its total is the mean over the batch, as in the public recipe: each batch is an update.

    Args:
        label_smoothing: the fraction of an image's target that all classes share equally, 0 to 1.
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
        dtype, device = loss_dtype(raw[0]), ops.device_of(raw[0])
        logits = ops.cast(raw[0], dtype)
        own = [logits.shape[0]]
        all_pieces = own if whole is None else [whole.num_images]
        wanted = self._wanted(targets, *logits.shape).astype(dtype)
        parts = batch_parts(own, all_pieces, whole, dtype, device)
        cost = self._cost if own[0] else _cost  # nothing is compiled for no images
        part = None if parts is None else parts.images
        return cost(logits, ops.tensor(wanted, device), part, float(this_process().world_size))

    def end_batch(self) -> None:
        """Do nothing: this loss has no state."""

    def _wanted(self, targets: Targets, num_images: int, num_classes: int) -> np.ndarray:
        """Return how probable each class should be, (B, C) float64."""
        rest = self.label_smoothing / num_classes
        wanted = np.zeros((num_images, num_classes))
        wanted[targets.image_index] = rest
        wanted[targets.image_index, targets.class_index] += 1 - self.label_smoothing
        return wanted


def _cost(logits: Tensor, wanted: Tensor, part: Tensor | None, ranks: float) -> LossTerms:
    """Return the mean over a batch, of which these (B, C) are a part, and its total.

    ranks: over which gradients are averaged.
    """
    mean = ops.sum(ops.log_softmax(logits) * wanted) * (-1.0 / max(logits.shape[0], 1))
    if part is not None:
        mean = mean * part
    return LossTerms({"classification": mean}, mean * ranks)
