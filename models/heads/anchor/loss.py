"""What the predictions cost: raw maps and the assignment -> `LossTerms`.

Before: `head.py` (raw maps) and `assign.py`. After: `models/training/step.py::train_step`.
Source: the public YOLOv5 recipe; terms and gains by its published hyper-parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from backend import ops
from backend.contract import Tensor
from models.heads.anchor.assign import Assignment, assign_targets
from models.heads.anchor.ciou import complete_iou
from models.heads.anchor.head import BOX_CHANNELS, AnchorHead, decode_centres, decode_sizes
from models.heads.anchor.shares import BatchShares, batch_shares
from utils.cli.hyperparameters import Hyperparameters
from utils.data.loading.batch import Targets

NOMINAL_CLASSES, NOMINAL_LEVELS, NOMINAL_IMAGE_SIZE = 80, 3, 640
# Weight of each level's objectness, finest first: fine levels have more cells, of which a
# smaller share is positive. Source: the public recipe.
LEVEL_BALANCE = {3: (4.0, 1.0, 0.4)}
LEVEL_BALANCE_OTHER = (4.0, 1.0, 0.25, 0.06, 0.02)

# (pred, target), (N, 4) cxcywh each -> (N,): that of `ciou.py`, or `backend.fused.complete_iou`.
BoxIou = Callable[[Tensor, Tensor], Tensor]


class LossTerms(NamedTuple):
    """Means over the batch, 0-d; `total` is their sum times the batch size.

    On several ranks each has its part: the ranks' means add up to those of the whole batch, and
    the mean of the gradients of their totals is the gradient of the whole batch's total.
    """

    box: Tensor
    objectness: Tensor
    classification: Tensor
    total: Tensor


@dataclass(frozen=True)
class LossGains:
    """Weights of the terms for one number of levels, classes and one image size."""

    box: float
    objectness: float
    classification: float
    objectness_positive: float
    classification_positive: float
    max_side_ratio: float

    @classmethod
    def scaled(
        cls, hyp: Hyperparameters, num_levels: int, num_classes: int, image_size: int
    ) -> LossGains:
        """The hyper-parameters' gains, given for 3 levels, 80 classes, 640 px, made to fit."""
        levels = NOMINAL_LEVELS / num_levels
        return cls(
            box=hyp.box * levels,
            objectness=hyp.obj * (image_size / NOMINAL_IMAGE_SIZE) ** 2 * levels,
            classification=hyp.cls * num_classes / NOMINAL_CLASSES * levels,
            objectness_positive=hyp.obj_pw,
            classification_positive=hyp.cls_pw,
            max_side_ratio=hyp.anchor_t,
        )


class Positives(NamedTuple):
    """The P positives of one level."""

    rows: np.ndarray  # (P,) int64, of the level flattened to cells
    predicted: Tensor  # (P, 5 + C) logits
    iou: Tensor  # (P,) CIoU of the predicted boxes with their targets
    class_index: np.ndarray  # (P,) int64


class DetectionLoss:
    """Box, objectness and classification loss of an anchor head."""

    def __init__(self, head: AnchorHead, gains: LossGains, box_iou: BoxIou = complete_iou) -> None:
        self.gains = gains
        self.box_iou = box_iou
        self.num_classes = head.num_classes
        self.anchors = ops.to_numpy(head.anchors)
        levels = len(self.anchors)
        self.balance = LEVEL_BALANCE.get(levels, LEVEL_BALANCE_OTHER)[:levels]

    def __call__(self, raw: Sequence[Tensor], targets: Targets) -> LossTerms:
        """Cost of a batch.

        Args:
            raw: per level (B, A, H, W, 5 + C) logits.
            targets: of the same batch; may be empty, which leaves objectness alone.
        """
        grids = [(level.shape[2], level.shape[3]) for level in raw]
        assignments = assign_targets(targets, self.anchors, grids, self.gains.max_side_ratio)
        positives = self._positives(raw, assignments)
        dtype, device = ops.dtype_of(raw[0]), ops.device_of(raw[0])
        shares = batch_shares(raw[0].shape[0], [len(p.rows) for p in positives], dtype, device)
        box = objectness = classification = ops.zeros((), dtype, device)
        for index, (level, positive) in enumerate(zip(raw, positives, strict=True)):
            terms = self._level_terms(level, positive)
            if shares is not None:
                factors = shares.positives[index], shares.images, shares.positives[index]
                terms = [term * factor for term, factor in zip(terms, factors, strict=True)]
            box = box + terms[0]
            objectness = objectness + terms[1] * self.balance[index]
            classification = classification + terms[2]
        return self.weighted(box, objectness, classification, raw[0].shape[0], shares)

    def weighted(
        self,
        box: Tensor,
        objectness: Tensor,
        classification: Tensor,
        num_images: int,
        shares: BatchShares | None,
    ) -> LossTerms:
        """The terms with their gains, and their total."""
        box, objectness = box * self.gains.box, objectness * self.gains.objectness
        classification = classification * self.gains.classification
        total = (box + objectness + classification) * (shares.total if shares else num_images)
        return LossTerms(box, objectness, classification, total)

    def _level_terms(self, level: Tensor, positive: Positives) -> list[Tensor]:
        """Unweighted [box, objectness, classification] of one level."""
        dtype, device = ops.dtype_of(level), ops.device_of(level)
        box = classification = ops.zeros((), dtype, device)
        truth = ops.zeros((int(np.prod(level.shape[:4])),), dtype, device)
        if len(positive.rows):
            box = 1.0 - ops.mean(positive.iou)
            truth = put_last(truth, positive.rows, ops.clamp(positive.iou.detach(), low=0.0))
            if self.num_classes > 1:
                classification = self._classification(positive.predicted, positive.class_index)
        logits = level[..., BOX_CHANNELS].reshape(-1)
        if level.shape[0] == 0:  # a rank that the last batch left without images
            return [box, ops.sum(logits), classification]
        objectness = ops.bce_with_logits(logits, truth, self.gains.objectness_positive)
        return [box, objectness, classification]

    def _positives(
        self, raw: Sequence[Tensor], assignments: Sequence[Assignment]
    ) -> list[Positives]:
        """Those of each level; the IoU of all levels is one call."""
        rows = [flat_cells(a, level.shape) for a, level in zip(assignments, raw, strict=True)]
        predicted = [
            ops.take_rows(level.reshape(-1, level.shape[4]), ops.tensor(r, ops.device_of(level)))
            for level, r in zip(raw, rows, strict=True)
        ]
        iou = self._iou(predicted, assignments)
        ends = accumulate(map(len, rows))
        return [
            Positives(r, p, iou[end - len(r) : end], assignment.class_index)
            for r, p, end, assignment in zip(rows, predicted, ends, assignments, strict=True)
        ]

    def _iou(self, predicted: Sequence[Tensor], assignments: Sequence[Assignment]) -> Tensor:
        """CIoU of each level's predicted rows (P, 5 + C) with their targets, in cells, joined."""
        dtype, device = ops.dtype_of(predicted[0]), ops.device_of(predicted[0])
        scores = ops.sigmoid(ops.cat([rows[:, :BOX_CHANNELS] for rows in predicted]))
        anchors = np.concatenate([a.anchors_wh for a in assignments]).astype(dtype)
        targets = np.concatenate([a.boxes_cxcywh for a in assignments]).astype(dtype)
        sizes = decode_sizes(scores[:, 2:], ops.tensor(anchors, device))
        boxes = ops.cat([decode_centres(scores[:, :2]), sizes], 1)
        return self.box_iou(boxes, ops.tensor(targets, device))

    def _classification(self, predicted: Tensor, class_index: np.ndarray) -> Tensor:
        """Binary cross-entropy of each class against one-hot targets, 0-d."""
        one_hot = np.eye(self.num_classes, dtype=ops.dtype_of(predicted))[class_index]
        return ops.bce_with_logits(
            predicted[:, BOX_CHANNELS + 1 :],
            ops.tensor(one_hot, ops.device_of(predicted)),
            self.gains.classification_positive,
        )


def flat_cells(assignment: Assignment, shape: Sequence[int]) -> np.ndarray:
    """Rows (P,) int64 of the positives in a level (B, A, H, W, ...) flattened to cells."""
    _, anchors, height, width = shape[:4]
    image_anchor = assignment.image_index * anchors + assignment.anchor_index
    return (image_anchor * height + assignment.row) * width + assignment.column


def put_last(x: Tensor, rows: np.ndarray, values: Tensor) -> Tensor:
    """x with x[rows] = values; of several values for one row the last counts.

    Frameworks leave open which one counts; deciding it here keeps them equal.
    """
    unique_rows, from_end = np.unique(rows[::-1], return_index=True)
    last = len(rows) - 1 - from_end
    device = ops.device_of(x)
    chosen = ops.take_rows(values, ops.tensor(last, device))
    return ops.put_rows(x, ops.tensor(unique_rows, device), chosen)
