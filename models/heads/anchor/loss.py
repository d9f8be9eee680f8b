"""Loss of anchor-based heads: raw maps and the assignment to `LossTerms`.

Source: the public YOLOv5 recipe with its published hyper-parameters.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.models.heads.anchor.assign import Assignment, assign_targets, join_assignments
from duet.models.heads.anchor.boxes import (
    BOX_CHANNELS,
    BoxIou,
    complete_iou,
    decode_centres,
    decode_sizes,
)
from duet.models.heads.base import BatchParts, Loss, LossTerms, WholeBatch, batch_parts, loss_dtype
from duet.utils.data.loading.batch import Targets
from duet.utils.strengths import LossGains

# Factors of the levels' objectness losses, finest level first: finer levels have more cells and a
# smaller fraction of positives.
LEVEL_BALANCE = {3: (4.0, 1.0, 0.4)}
LEVEL_BALANCE_OTHER = (4.0, 1.0, 0.25, 0.06, 0.02)
FOCAL_ALPHA = 0.25  # weight of positives, as in the paper; 1 - alpha for negatives
FOCAL_EPS = 1e-12  # added to the error: powers below 1 have no gradient at 0


class DetectionCost(NamedTuple):
    """Box loss of a batch, and the inputs for losses beyond boxes."""

    terms: LossTerms
    assignments: Sequence[Assignment]
    added: Tensor  # (K, ...) extra values of all rows
    rows: np.ndarray  # (P,) int64: those of the positives of all levels
    parts: BatchParts | None


class Constants(NamedTuple):
    """Constants of the loss on the device."""

    one_hot: Tensor  # (C, C): a smoothed row per class
    balance: Tensor  # (levels,)
    gains: Tensor  # (3,) of box, objectness and classification
    class_weights: Tensor | None = None  # (C,) factors of positives' costs; None: all 1


class DetectionLoss(Loss):
    """Box, objectness and classification loss of an anchor-based head.

    Args:
        anchors: (levels, A, 2) width and height in cells of the level.
        num_classes: number of classes.
        gains: weights of the terms, scaled for the head.
        box_iou: IoU function of the box loss.
        label_smoothing: epsilon from 0 to 1; class targets become 1 - epsilon / 2 and epsilon / 2.
    """

    def __init__(
        self,
        anchors: np.ndarray,
        num_classes: int,
        gains: LossGains,
        box_iou: BoxIou = complete_iou,
        label_smoothing: float = 0.0,
    ) -> None:
        self.anchors, self.num_classes, self.gains = anchors, num_classes, gains
        self.box_iou, self.label_smoothing = box_iou, label_smoothing
        self._balance = LEVEL_BALANCE.get(len(anchors), LEVEL_BALANCE_OTHER)
        self._kept: dict[tuple[str, str], Constants] = {}

    @property
    def implementations(self) -> Mapping[str, str]:
        return {"box_iou": "plain" if self.box_iou is complete_iou else "fast"}

    def __call__(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None = None
    ) -> LossTerms:
        """Return the loss of a batch or of a piece of it.

        Args:
            raw: per level (B, A, H, W, 5 + C) logits.
            targets: targets of the same images; if empty, only objectness counts.
            whole: the batch that this is a piece of; None if it is the whole batch.
        """
        return self.cost_of_boxes(raw, targets, whole).terms

    def cost_of_boxes(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None
    ) -> DetectionCost:
        """Return the loss; rows of raw, (B, A, H, W, 5 + C + added), may have extra values."""
        shapes = [level.shape for level in raw]
        grids = [(height, width) for _, _, height, width, _ in shapes]
        assignments = assign_targets(targets, self.anchors, grids, self.gains.max_side_ratio)
        dtype, device = loss_dtype(raw[0]), ops.device_of(raw[0])
        positives = join_assignments(assignments, shapes, self.pads(raw), dtype)
        counts = [shapes[0][0], *(len(found.row) for found in assignments)]
        parts = batch_parts(counts, self._counts_of(whole, counts, grids), whole, dtype, device)
        terms, added = self._computed(
            counts[0],
            tuple(raw),
            positives.sizes,
            ops.tensor(positives.indices, device),
            ops.tensor(positives.numbers, device),
            self._constants(dtype, device),
            parts,
        )
        rows = np.flatnonzero(positives.numbers[:, 6])
        return DetectionCost(terms, assignments, added, rows, parts)

    def _counts_of(
        self, whole: WholeBatch | None, counts: Sequence[int], grids: Sequence[tuple[int, int]]
    ) -> Sequence[int]:
        """Return the numbers of images and positives of the whole batch, given one piece's."""
        if whole is None or whole.num_images == counts[0]:
            return counts
        if whole.over_ranks is not None:  # counted with the first piece
            return [whole.num_images]
        found = assign_targets(whole.targets, self.anchors, grids, self.gains.max_side_ratio)
        return [whole.num_images, *(len(level.row) for level in found)]

    def on_device(
        self,
        raw: Sequence[Tensor],
        sizes: Sequence[int],
        indices: Tensor,
        numbers: Tensor,
        constants: Constants,
        parts: BatchParts | None,
    ) -> tuple[LossTerms, Tensor]:
        """Compute the terms from raw maps and `Positives`, without reading from the device.

        Returns:
            The terms, and the extra values of all rows, (K, added).
        """
        spans = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
        # In (B, H, W, A) order, channels-last maps need no copy.
        cells = [level.permute(0, 2, 3, 1, 4).reshape(-1, level.shape[4]) for level in raw]
        taken = [
            ops.take_rows_and_column(rows, indices[0, span], BOX_CHANNELS)
            for rows, span in zip(cells, spans, strict=True)
        ]
        predicted = ops.cast(ops.cat([rows for rows, _ in taken]), ops.dtype_of(numbers))
        weights = numbers[:, 6]
        if parts is not None:
            weights = weights * ops.take_rows(parts.positives, indices[3])
        iou = self._iou(predicted[:, :BOX_CHANNELS], numbers)
        objectness = self._objectness(
            [logits for _, logits in taken], indices[1], iou, constants.balance
        )
        if parts is not None:
            objectness = objectness * parts.images
        box, end = ops.sum((1.0 - iou) * weights), BOX_CHANNELS + 1 + self.num_classes
        logits = predicted[:, BOX_CHANNELS + 1 : end]
        classification = self._classification(logits, indices[2], weights, constants)
        losses = ops.stack([box, objectness, classification]) * constants.gains
        total = ops.sum(losses) * (parts.total if parts else raw[0].shape[0])
        names = ("box", "objectness", "classification")
        terms = LossTerms({name: losses[i] for i, name in enumerate(names)}, total)
        return terms, predicted[:, end:]

    def _iou(self, box_logits: Tensor, numbers: Tensor) -> Tensor:
        """Return the IoU (K,) of predicted boxes (K, 4) and their targets, in cells."""
        scores = ops.sigmoid(box_logits)
        sizes = decode_sizes(scores[:, 2:], numbers[:, 4:6])
        boxes = ops.cat([decode_centres(scores[:, :2]), sizes], 1)
        return self.box_iou(boxes, numbers[:, :4])

    def _objectness(
        self, logits: Sequence[Tensor], claims: Tensor, iou: Tensor, balance: Tensor
    ) -> Tensor:
        """Return the levels' mean cross-entropies against the IoU of targets, weighted, 0-d."""
        counts = [level.shape[0] for level in logits]
        if not sum(counts):  # a rank without images in the last batch
            return ops.sum(ops.cat(logits))
        truth = ops.zeros((sum(counts) + claims.shape[0],), ops.dtype_of(iou), ops.device_of(iou))
        truth = ops.put_rows(truth, claims, ops.clamp(iou.detach(), low=0.0))
        ends = list(accumulate(counts))
        gains = self.gains.objectness_positive, self.gains.focal_gamma
        means = [
            cross_entropy(level, truth[end - level.shape[0] : end], *gains)
            for level, end in zip(logits, ends, strict=True)
        ]
        return ops.sum(ops.stack(means) * balance)

    def _classification(
        self, logits: Tensor, classes: Tensor, weights: Tensor, constants: Constants
    ) -> Tensor:
        """Return the weighted sum of rows' mean cross-entropies over the classes, 0-d."""
        if self.num_classes == 1 or not logits.shape[0]:
            return ops.zeros((), ops.dtype_of(logits), ops.device_of(logits))
        wanted = ops.take_rows(constants.one_hot, classes)
        gains = self.gains.classification_positive, self.gains.focal_gamma
        costs = ops.mean(entropy_terms(logits, wanted, *gains), 1)
        if constants.class_weights is not None:
            costs = costs * ops.take_rows(constants.class_weights, classes)
        return ops.sum(costs * weights)

    def _constants(self, dtype: str, device: str) -> Constants:
        """Return the loss's constants on a device, made once."""
        if (dtype, device) not in self._kept:
            one_hot = np.eye(self.num_classes)
            one_hot = one_hot * (1 - self.label_smoothing) + self.label_smoothing / 2
            gains = (self.gains.box, self.gains.objectness, self.gains.classification)
            balance, weights = self._balance[: len(self.anchors)], self.gains.class_weights
            tensors = [ops.tensor(np.array(x, dtype), device) for x in (one_hot, balance, gains)]
            constants = Constants(*tensors)
            if weights:
                of_class = ops.tensor(np.array(weights, dtype), device)
                constants = constants._replace(class_weights=of_class)
            self._kept[dtype, device] = constants
        return self._kept[dtype, device]


def cross_entropy(
    logits: Tensor, truth: Tensor, positive_weight: float, focal_gamma: float
) -> Tensor:
    """Return the mean cross-entropy, plain or focal, 0-d.

    Focal loss: Lin et al. 2017, arXiv:1708.02002. Soft targets interpolate between its two cases,
    as in the public YOLOv5's stored results.

    Args:
        truth: same shape as logits, 0 to 1, constant.
        positive_weight: factor of the positive term.
        focal_gamma: 0 for plain cross-entropy; larger values down-weight easy examples more.
    """
    if focal_gamma == 0:
        return ops.bce_with_logits(logits, truth, positive_weight)
    return ops.mean(entropy_terms(logits, truth, positive_weight, focal_gamma))


def entropy_terms(
    logits: Tensor, truth: Tensor, positive_weight: float, focal_gamma: float
) -> Tensor:
    """Return the terms whose mean is `cross_entropy`, in the shape of logits."""
    terms = ops.bce_terms(logits, truth, positive_weight)
    if focal_gamma == 0:
        return terms
    scores = ops.sigmoid(logits)
    missed = truth * (1.0 - scores) + (1.0 - truth) * scores
    alpha = truth * FOCAL_ALPHA + (1.0 - truth) * (1.0 - FOCAL_ALPHA)
    return terms * alpha * (missed + FOCAL_EPS) ** focal_gamma
