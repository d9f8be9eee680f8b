"""Loss of anchor-based heads: raw maps and the assignment to `LossTerms`.

Source: the public YOLOv5 recipe with its published hyper-parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from duet.backend import fused, ops
from duet.backend.contract import Tensor
from duet.models.heads.anchor.assign import Assignment, assign_targets, join_assignments
from duet.models.heads.anchor.boxes import (
    BOX_CHANNELS,
    BoxIou,
    complete_iou,
    decode_centres,
    decode_sizes,
)
from duet.models.heads.base import BatchParts, Loss, LossTerms, WholeBatch, batch_parts
from duet.utils.data.loading.batch import Targets
from duet.utils.strengths import LossGains

# Factors of the levels' objectness losses, finest level first: finer levels have more cells and a
# smaller fraction of positives.
LEVEL_BALANCE = {3: (4.0, 1.0, 0.4)}
LEVEL_BALANCE_OTHER = (4.0, 1.0, 0.25, 0.06, 0.02)
# Logit whose binary cross-entropy against 0, and its gradient, is 0 in any float dtype.
CERTAINLY_NOT = -1e4
FOCAL_ALPHA = 0.25  # weight of positives, as in the paper; 1 - alpha for negatives
FOCAL_EPS = 1e-12  # added to the error: powers below 1 have no gradient at 0


def loss_dtype(raw: Tensor) -> str:
    """Return the loss dtype for raw maps: their own, or float32 for half precision."""
    return "float64" if ops.dtype_of(raw) == "float64" else "float32"


class DetectionCost(NamedTuple):
    """Box loss of a batch, and the inputs for losses beyond boxes."""

    terms: LossTerms
    assignments: Sequence[Assignment]
    added: Sequence[Tensor]  # per level the extra values of its positives, (P, ...)
    parts: BatchParts | None


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
        self._one_hots: dict[tuple[str, str], Tensor] = {}

    @property
    def means(self) -> Mapping[str, str]:
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
        # Without images there are no cells for padding rows.
        compiled = self._compiled if shapes[0][0] else None
        positives = join_assignments(assignments, shapes, self.num_classes, compiled is not None)
        dtype, device = loss_dtype(raw[0]), ops.device_of(raw[0])
        counts = [shapes[0][0], *(len(found.row) for found in assignments)]
        parts = batch_parts(counts, self._counts_of(whole, counts, grids), whole, dtype, device)
        terms, added = (compiled or self.on_device)(
            tuple(raw),
            positives.sizes,
            ops.tensor(positives.indices, device),
            ops.tensor(positives.numbers.astype(dtype), device),
            self._one_hot(dtype, device),
            parts,
            compiled is not None,
        )
        added = [rows[:number] for rows, number in zip(added, counts[1:], strict=False)]
        return DetectionCost(terms, assignments, added, parts)

    def _counts_of(
        self, whole: WholeBatch | None, counts: Sequence[int], grids: Sequence[tuple[int, int]]
    ) -> Sequence[int]:
        """Return the numbers of images and positives of the whole batch, given one piece's."""
        if whole is None or whole.num_images == counts[0]:
            return counts
        found = assign_targets(whole.targets, self.anchors, grids, self.gains.max_side_ratio)
        return [whole.num_images, *(len(level.row) for level in found)]

    def on_device(
        self,
        raw: Sequence[Tensor],
        sizes: Sequence[int],
        indices: Tensor,
        numbers: Tensor,
        one_hot: Tensor,
        parts: BatchParts | None,
        padded: bool,
    ) -> tuple[LossTerms, list[Tensor]]:
        """Compute the terms from raw maps and `Positives`, without reading from the device.

        Returns:
            The terms, and per level the extra values of its positives.
        """
        spans = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
        # In (B, H, W, A) order, channels-last maps need no copy.
        cells = [level.permute(0, 2, 3, 1, 4).reshape(-1, level.shape[4]) for level in raw]
        taken = [
            fused.take_rows_and_column(rows, indices[0, span], BOX_CHANNELS)
            for rows, span in zip(cells, spans, strict=True)
        ]
        predicted = [rows for rows, _ in taken]
        if padded:  # lets a compiled function gather whole rows once, for box and class
            box_logits = ops.cat(predicted)[:, :BOX_CHANNELS]
        else:
            box_logits = ops.cat([rows[:, :BOX_CHANNELS] for rows in predicted])
        iou = self._iou(box_logits, numbers)
        box = objectness = classification = ops.zeros(
            (), ops.dtype_of(numbers), ops.device_of(numbers)
        )
        for index, ((_, logits), span) in enumerate(zip(taken, spans, strict=True)):
            part = None if parts is None else parts.positives[index]
            logits = logits if padded else grid_order(logits, raw[index].shape)
            mean = self._objectness(logits, indices[1, span], iou[span])
            mean = part_of(mean, None if parts is None else parts.images)
            objectness = objectness + mean * self._balance[index]
            if sizes[index] == 0:
                continue
            weights = numbers[span, 6] if padded else None
            box = box + part_of(mean_gap(iou[span], weights), part)
            if self.num_classes > 1:
                wanted = ops.take_rows(one_hot, indices[2, span])
                mean = self._classification(predicted[index], wanted, weights)
                classification = classification + part_of(mean, part)
        terms = self._weighted(box, objectness, classification, raw[0].shape[0], parts)
        end = BOX_CHANNELS + 1 + self.num_classes
        added = [rows[:, end:] for rows in predicted] if raw[0].shape[4] > end else []
        return terms, added

    def _iou(self, box_logits: Tensor, numbers: Tensor) -> Tensor:
        """Return the IoU (K,) of predicted boxes (K, 4) and their targets, in cells."""
        scores = ops.sigmoid(box_logits)
        sizes = decode_sizes(scores[:, 2:], numbers[:, 4:6])
        boxes = ops.cat([decode_centres(scores[:, :2]), sizes], 1)
        return self.box_iou(boxes, numbers[:, :4])

    def _objectness(self, logits: Tensor, claims: Tensor, iou: Tensor) -> Tensor:
        """Return a level's mean cross-entropy against the IoU of the targets, 0-d."""
        if logits.shape[0] == 0:  # a rank without images in the last batch
            return ops.sum(logits)
        cells, dtype, device = logits.shape[0], ops.dtype_of(logits), ops.device_of(logits)
        truth = ops.zeros((cells + claims.shape[0],), dtype, device)
        if claims.shape[0]:
            truth = ops.put_rows(truth, claims, ops.clamp(iou.detach(), low=0.0))
        gains = self.gains
        return cross_entropy(logits, truth[:cells], gains.objectness_positive, gains.focal_gamma)

    def _classification(self, predicted: Tensor, wanted: Tensor, weights: Tensor | None) -> Tensor:
        """Return the mean cross-entropy of rows (P, 5 + C) against one-hot rows (P, C), 0-d."""
        gains, first = self.gains, BOX_CHANNELS + 1
        logits = predicted[:, first : first + self.num_classes]
        if weights is None:
            return cross_entropy(logits, wanted, gains.classification_positive, gains.focal_gamma)
        size = wanted.shape[0]
        logits = ops.where(weights.reshape(size, 1) > 0.0, logits, CERTAINLY_NOT)
        mean = cross_entropy(logits, wanted, gains.classification_positive, gains.focal_gamma)
        return mean * (ops.amax(weights, 0) * float(size))

    def _weighted(
        self,
        box: Tensor,
        objectness: Tensor,
        classification: Tensor,
        num_images: int,
        parts: BatchParts | None,
    ) -> LossTerms:
        """Return the terms multiplied by their gains, and the total."""
        box, objectness = box * self.gains.box, objectness * self.gains.objectness
        classification = classification * self.gains.classification
        total = (box + objectness + classification) * (parts.total if parts else num_images)
        names = {"box": box, "objectness": objectness, "classification": classification}
        return LossTerms(names, total)

    def _one_hot(self, dtype: str, device: str) -> Tensor:
        """Return cached (C + 1, C): a smoothed row per class, then zeros for padding."""
        if (dtype, device) not in self._one_hots:
            rows = np.eye(self.num_classes + 1, self.num_classes)
            rows[:-1] = rows[:-1] * (1 - self.label_smoothing) + self.label_smoothing / 2
            self._one_hots[dtype, device] = ops.tensor(rows.astype(dtype), device)
        return self._one_hots[dtype, device]


def part_of(mean: Tensor, part: Tensor | None) -> Tensor:
    """Return this rank's part of the mean over all ranks; the mean itself with one rank."""
    return mean if part is None else mean * part


def mean_gap(iou: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean of 1 - IoU, 0-d; weights, if given, sum to 1 or are all 0."""
    return 1.0 - ops.mean(iou) if weights is None else ops.sum((1.0 - iou) * weights)


def grid_order(values: Tensor, shape: Sequence[int]) -> Tensor:
    """Reorder values per cell from (B, H, W, A) to (B, A, H, W), (cells,).

    This is the established summation order; keeping it keeps the last bits.
    """
    images, anchors, height, width = shape[:4]
    return values.reshape(images, height, width, anchors).permute(0, 3, 1, 2).reshape(-1)


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
    scores = ops.sigmoid(logits)
    missed = truth * (1.0 - scores) + (1.0 - truth) * scores
    alpha = truth * FOCAL_ALPHA + (1.0 - truth) * (1.0 - FOCAL_ALPHA)
    terms = ops.bce_terms(logits, truth, positive_weight)
    return ops.mean(terms * alpha * (missed + FOCAL_EPS) ** focal_gamma)
