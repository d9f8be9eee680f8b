"""The loss of `loss.py` with shapes that do not depend on the targets: for compiled steps.

Before: `head.py` (raw maps) and `assign.py`. After: `models/training/step.py::train_step`.
Which cells are positive is decided on the host, as in `loss.py`, and so is which of several
claims on a cell is the last. The device gets so many rows a level that the batch's assignment
fits, filled up with rows of weight zero: a few sizes in all, and nothing is read back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from backend import ops
from backend.contract import Tensor
from models.heads.anchor.assign import Assignment, assign_targets
from models.heads.anchor.head import BOX_CHANNELS, decode_centres, decode_sizes
from models.heads.anchor.loss import DetectionLoss, LossTerms
from models.heads.anchor.shares import BatchShares, batch_shares
from utils.data.loading.batch import Targets

SMALLEST_SIZE = 256  # rows a level
SIZE_FACTOR = 4  # from one size to the next: each one may cost a compilation
# Its binary cross-entropy against 0 is 0 in any float dtype, and so is its gradient.
CERTAINLY_NOT = -1e4

Cost = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor, Tensor, BatchShares | None], LossTerms]


class PaddedLoss:
    """The same terms as a `DetectionLoss`, to rounding.

    Args:
        loss: the plain one, whose settings are taken over.
        compiled: what makes the function of the device's part, by default itself.
    """

    def __init__(
        self, loss: DetectionLoss, compiled: Callable[[Cost], Cost] = lambda cost: cost
    ) -> None:
        self.plain = loss
        self._cost = compiled(self._cost_of)
        self._constants: dict[tuple[object, ...], Tensor] = {}

    def __call__(self, raw: Sequence[Tensor], targets: Targets) -> LossTerms:
        """Cost of a batch; arguments as those of `DetectionLoss`."""
        if raw[0].shape[0] == 0:  # no cell that padding could stand for
            return self.plain(raw, targets)
        grids = [(level.shape[2], level.shape[3]) for level in raw]
        assignments = assign_targets(
            targets, self.plain.anchors, grids, self.plain.gains.max_side_ratio
        )
        indices, numbers = pad_assignments(assignments, [level.shape for level in raw])
        dtype, device = ops.dtype_of(raw[0]), ops.device_of(raw[0])
        size = indices.shape[2]
        blanks = [self._blank(int(np.prod(x.shape[:4])) + size, dtype, device) for x in raw]
        return self._cost(
            tuple(raw),
            (self._one_hot(dtype, device), *blanks),
            ops.tensor(indices, device),
            ops.tensor(numbers.astype(dtype), device),
            batch_shares(raw[0].shape[0], [len(a.row) for a in assignments], dtype, device),
        )

    def _cost_of(
        self,
        raw: Sequence[Tensor],
        constants: Sequence[Tensor],
        indices: Tensor,
        numbers: Tensor,
        shares: BatchShares | None,
    ) -> LossTerms:
        """What `pad_assignments` made, and raw maps, to loss terms: shapes fixed throughout."""
        one_hot, *blanks = constants
        size = indices.shape[2]
        # In this order channels-last maps need no copy.
        flat = [level.permute(0, 2, 3, 1, 4).reshape(-1, level.shape[4]) for level in raw]
        predicted = [ops.take_rows(rows, indices[0, i]) for i, rows in enumerate(flat)]
        weights = numbers[:, :, 6]
        if shares is not None:
            weights = weights * shares.positives.reshape(-1, 1)
        weights, numbers = weights.reshape(-1), numbers.reshape(-1, numbers.shape[2])
        iou = self._iou_of(ops.cat(predicted, 0), numbers)
        box = ops.sum((1.0 - iou) * weights)
        claimed = ops.clamp(iou.detach(), low=0.0)
        objectness, classification = [], [ops.sum(weights * 0.0)]
        for level, (rows, blank) in enumerate(zip(flat, blanks, strict=True)):
            here = slice(level * size, (level + 1) * size)
            truth = ops.put_rows(blank, indices[1, level], claimed[here])[: rows.shape[0]]
            mean = ops.bce_with_logits(
                rows[:, BOX_CHANNELS], truth, self.plain.gains.objectness_positive
            )
            mean = mean if shares is None else mean * shares.images
            objectness.append(mean * self.plain.balance[level])
            if self.plain.num_classes > 1:
                wanted = ops.take_rows(one_hot, indices[2, level])
                classification.append(self._classification(predicted[level], wanted, weights[here]))
        joined = [ops.sum(ops.stack(terms, 0)) for terms in (objectness, classification)]
        return self.plain.weighted(box, joined[0], joined[1], raw[0].shape[0], shares)

    def _iou_of(self, predicted: Tensor, numbers: Tensor) -> Tensor:
        """IoU (K,) of predicted rows (K, 5 + C) with their targets, in cells."""
        scores = ops.sigmoid(predicted[:, :BOX_CHANNELS])
        sizes = decode_sizes(scores[:, 2:], numbers[:, 4:6])
        return self.plain.box_iou(
            ops.cat([decode_centres(scores[:, :2]), sizes], 1), numbers[:, :4]
        )

    def _classification(self, predicted: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
        """Mean binary cross-entropy of a level's rows that have a weight, 0-d; 0 of none."""
        size, num_classes = wanted.shape
        counted = weights.reshape(size, 1) > 0.0
        logits = ops.where(counted, predicted[:, BOX_CHANNELS + 1 :], CERTAINLY_NOT)
        mean = ops.bce_with_logits(logits, wanted, self.plain.gains.classification_positive)
        return mean * (ops.amax(weights, 0) * float(size))

    def _blank(self, size: int, dtype: str, device: str) -> Tensor:
        """(size,) zeros, kept: they are never written to."""
        key = (size, dtype, device)
        if key not in self._constants:
            self._constants[key] = ops.zeros((size,), dtype, device)
        return self._constants[key]

    def _one_hot(self, dtype: str, device: str) -> Tensor:
        """(C + 1, C): a row for each class and, last, the row of no class."""
        key = ("one-hot", dtype, device)
        if key not in self._constants:
            classes = self.plain.num_classes
            self._constants[key] = ops.tensor(np.eye(classes + 1, classes, dtype=dtype), device)
        return self._constants[key]


def padded_size(count: int) -> int:
    """The smallest of 256, 1024, 4096, ... rows that hold so many positives."""
    size = SMALLEST_SIZE
    while size < count:
        size *= SIZE_FACTOR
    return size


def pad_assignments(
    assignments: Sequence[Assignment], shapes: Sequence[Sequence[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """The assignments of L levels, each in the same number K of rows.

    Args:
        shapes: (B, A, H, W, 5 + C) of each level.

    Returns:
        indices: (3, L, K) int64: the cell, counted over (B, H, W, A); where its objectness goes:
            the cell, or a place of its own behind all cells for a row that does not count there;
            the class, C for a row that is padding.
        numbers: (L, K, 7) float64: target box, anchor, weight: 1 / positives of the level, 0 for
            padding.
    """
    size = padded_size(max(len(found.row) for found in assignments))
    indices = np.zeros((3, len(assignments), size), np.int64)
    numbers = np.ones((len(assignments), size, 7))
    for level, (found, shape) in enumerate(zip(assignments, shapes, strict=True)):
        _, anchors, height, width, outputs = shape
        count = len(found.row)
        cells = (found.image_index * height + found.row) * width + found.column
        cells = cells * anchors + found.anchor_index
        indices[0, level, :count] = cells
        indices[1, level] = int(np.prod(shape[:4])) + np.arange(size)
        last = last_claims(cells)
        indices[1, level, last] = cells[last]
        indices[2, level] = outputs - BOX_CHANNELS - 1
        indices[2, level, :count] = found.class_index
        numbers[level, :count, :4] = found.boxes_cxcywh
        numbers[level, :count, 4:6] = found.anchors_wh
        numbers[level, :, 6] = 0
        numbers[level, :count, 6] = 1 / max(count, 1)
    return indices, numbers


def last_claims(cells: np.ndarray) -> np.ndarray:
    """Positions of the last occurrence of each value, as `loss.put_last` chooses them."""
    _, from_end = np.unique(cells[::-1], return_index=True)
    return len(cells) - 1 - from_end
