"""Loss of the anchor-free head: raw maps and the assignment to `LossTerms`.

Sources: Feng et al. 2021, TOOD, arXiv:2108.07755; Li et al. 2020, Generalized Focal Loss,
arXiv:2006.04388; Zheng et al. 2020, CIoU, arXiv:1911.08287; gains and averaging match the stored
losses of the public YOLOv8.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from duet.backend import autograd, dist, ops
from duet.backend.contract import Tensor
from duet.backend.processes import this_process
from duet.models.heads.anchor.boxes import BoxIou, complete_iou
from duet.models.heads.base import Loss, LossTerms, WholeBatch, loss_dtype
from duet.models.heads.distribution.assign import (
    Assigned,
    Candidates,
    assign_cells,
    find_candidates,
)
from duet.models.heads.distribution.rows import (
    BINS,
    EDGE_LOGITS,
    EDGES,
    boxes_of_rows,
    rows_of_maps,
)
from duet.utils.data.loading.batch import Targets
from duet.utils.strengths import LossGains

# The public box gain is 7.5 here and 0.05 for anchor-based heads. This factor lets one file of
# hyper-parameters serve both.
BOX_GAIN = 150.0
FARTHEST = BINS - 1 - 0.01  # largest target distance of an edge, in cells


class Cells(NamedTuple):
    """The cells of all levels in row-major order, for each image."""

    centres: Tensor  # (B * N, 2) in cells of the level
    strides: Tensor  # (B * N, 1) pixels


class Positives(NamedTuple):
    """Targets of E cells; those with score 0 do not count."""

    cell: Tensor  # (E,) int64, flat index over (B, N)
    place: Tensor  # (E,) int64, flat index of the class over (B, N, C), or after the end if unused
    boxes_cxcywh: Tensor  # (E, 4) in cells of the level
    centres: Tensor  # (E, 2) centres of the cells
    scores: Tensor  # (E,)
    weights: Tensor | None = None  # (E,) factors of the costs of their classes; None: all 1


class DistributionLoss(Loss):
    """Box, classification and distribution loss.

    All three are sums divided by the batch's sum of target scores, clamped to at least 1; with
    --micro-batch, by an estimate of it: see `batch_scores`.

    Args:
        strides: strides of the levels, pixels.
        num_classes: number of classes.
        gains: gains from the hyper-parameters.
        box_iou: IoU function.
    """

    def __init__(
        self,
        strides: Sequence[int],
        num_classes: int,
        gains: LossGains,
        box_iou: BoxIou = complete_iou,
    ) -> None:
        self.strides, self.num_classes, self.gains = tuple(strides), num_classes, gains
        self.box_iou = box_iou
        self._cells: dict[tuple[object, ...], Cells] = {}

    @property
    def implementations(self) -> Mapping[str, str]:
        return {"box_iou": "plain" if self.box_iou is complete_iou else "fast"}

    def __call__(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None = None
    ) -> LossTerms:
        """Return the loss of a batch or of a piece of it.

        Args:
            raw: per level (B, 64 + C, H, W) logits.
            targets: targets of the same images; if empty, only classification counts.
            whole: the batch that this is a piece of; None if it is the whole batch.
        """
        dtype, images = loss_dtype(raw[0]), raw[0].shape[0]
        rows = rows_of_maps([ops.cast(level, dtype) for level in raw])
        rows = rows.reshape(rows.shape[0] * rows.shape[1], rows.shape[2])
        with autograd.no_grad():
            grids = [(level.shape[2], level.shape[3]) for level in raw]
            cells = self.cells_of(images, grids, dtype, ops.device_of(rows))
            found = find_candidates(targets, grids, self.strides, dtype, self.pads(raw))
            positives = self._positives(found, self.assign(found, rows.detach(), cells), cells)
        sums = self._computed(images, rows, positives)
        own, scores = whole or WholeBatch(images, targets), ops.sum(positives.scores)
        if this_process().world_size == 1 and own.num_images == images:
            return self._weighted(sums, scores, float(images))
        return self._weighted(sums, *batch_scores(scores, targets, own))

    def assign(self, found: Candidates, rows: Tensor, cells: Cells) -> Assigned:
        """Assign cells to objects.

        rows: all images' rows, (B * N, 64 + C).
        """
        if not rows.shape[0]:  # a rank without images in the last batch
            dtype, device = ops.dtype_of(rows), ops.device_of(rows)
            none = ops.zeros((0,), "int64", device)
            return Assigned(none, none, ops.zeros((0,), dtype, device))
        boxes = boxes_of_rows(rows[:, :EDGE_LOGITS], cells.centres) * cells.strides
        return assign_cells(found, boxes, rows, self.box_iou)

    def _positives(self, found: Candidates, assigned: Assigned, cells: Cells) -> Positives:
        """Return the assigned cells' targets."""
        cell, index, scores = assigned
        device = ops.device_of(scores)
        behind = ops.arange(scores.shape[0], "int64", device) + (
            cells.strides.shape[0] * self.num_classes
        )
        classes = ops.take_rows(ops.tensor(found.class_index, device), index)
        place = ops.where(scores > 0.0, cell * self.num_classes + classes, behind)
        boxes = ops.take_rows(ops.tensor(found.boxes_cxcywh, device), index)
        boxes = boxes / ops.take_rows(cells.strides, cell)
        weights = None
        if self.gains.class_weights:
            of_class = np.array(self.gains.class_weights, ops.dtype_of(scores))
            weights = ops.take_rows(ops.tensor(of_class, device), classes)
        return Positives(cell, place, boxes, ops.take_rows(cells.centres, cell), scores, weights)

    def on_device(self, rows: Tensor, positives: Positives) -> tuple[Tensor, ...]:
        """Return the sums of box, classification and distribution loss, 0-d each.

        The assignment comes before: its shapes depend on the objects.
        """
        scores = positives.scores
        dtype, device = ops.dtype_of(scores), ops.device_of(scores)
        classification = self._classification(rows[:, EDGE_LOGITS:], positives)
        box = distribution = ops.zeros((), dtype, device)
        if scores.shape[0]:
            logits = ops.take_rows(rows, positives.cell)[:, :EDGE_LOGITS]
            iou = self.box_iou(boxes_of_rows(logits, positives.centres), positives.boxes_cxcywh)
            box = ops.sum((1.0 - iou) * scores)
            distribution = ops.sum(distribution_cost(logits, positives) * scores)
        return box, classification, distribution

    def _classification(self, logits: Tensor, positives: Positives) -> Tensor:
        """Return the summed cross-entropy of all class scores (B * N, C), 0-d."""
        count = logits.shape[0] * logits.shape[1]
        if not count:  # a rank without images in the last batch
            return ops.sum(logits)
        scores = positives.scores
        dtype, device = ops.dtype_of(scores), ops.device_of(scores)
        zeros = ops.zeros((count + scores.shape[0],), dtype, device)
        wanted = ops.put_rows(zeros, positives.place, scores)[:count]
        if positives.weights is None:
            return ops.bce_with_logits(logits.reshape(count), wanted) * float(count)
        weights = ops.put_rows(zeros + 1.0, positives.place, positives.weights)[:count]
        return ops.sum(ops.bce_terms(logits.reshape(count), wanted) * weights)

    def _weighted(
        self, sums: Sequence[Tensor], scores: Tensor, images: Tensor | float
    ) -> LossTerms:
        """Return the terms multiplied by their gains, and the total.

        scores, images: the batch's sum of target scores, and its number of images.
        """
        norm = ops.clamp(scores, low=1.0)
        gains = self.gains.box * BOX_GAIN, self.gains.classification, self.gains.distribution
        terms = [x / norm * gain for x, gain in zip(sums, gains, strict=True)]
        names = ("box", "classification", "distribution")
        total = (terms[0] + terms[1] + terms[2]) * images * float(this_process().world_size)
        return LossTerms(dict(zip(names, terms, strict=True)), total)

    def cells_of(
        self, images: int, grids: Sequence[tuple[int, int]], dtype: str, device: str
    ) -> Cells:
        """Return the cells of maps, cached for the last shape."""
        key = images, *grids, dtype, device
        if key not in self._cells:
            self._cells.clear()
            self._cells[key] = _make_cells(images, grids, self.strides, dtype, device)
        return self._cells[key]


def distribution_cost(logits: Tensor, positives: Positives) -> Tensor:
    """Return the distribution focal loss of (E, 64), averaged over the four edges, (E,).

    It is the cross-entropy against the two bins around the true distance, weighted by proximity.
    """
    boxes, centres, number = positives.boxes_cxcywh, positives.centres, logits.shape[0]
    dtype, device = ops.dtype_of(logits), ops.device_of(logits)
    half, offset = boxes[:, 2:] / 2, boxes[:, :2] - centres
    wanted = ops.clamp(ops.cat([half - offset, half + offset], 1), 0.0, FARTHEST)
    bins = ops.arange(BINS, dtype, device)
    apart = wanted.reshape(number, EDGES, 1) - bins
    shares = ops.clamp(1.0 - ops.maximum(apart, -apart), low=0.0)
    costs = ops.log_softmax(logits.reshape(number, EDGES, BINS)) * shares
    return ops.sum(costs.reshape(number, EDGE_LOGITS), 1) / -float(EDGES)


def batch_scores(scores: Tensor, targets: Targets, own: WholeBatch) -> tuple[Tensor, Tensor]:
    """Return the batch's sum of target scores and its number of images, over all ranks.

    Objects of later pieces count as the mean of those up to this piece, or as 1 without any. Ranks
    synchronize once per batch, in their first pieces, because their numbers of pieces may differ.

    scores: sum of the piece's target scores, 0-d.
    """
    dtype, device = ops.dtype_of(scores), ops.device_of(scores)
    is_first = own.over_ranks is None
    batch = (own.num_images, len(own.targets.class_index)) if is_first else (0, 0)
    numbers = np.array([len(targets.class_index), *batch], dtype)
    counts = ops.cat([scores.reshape(1), ops.tensor(numbers, device)])
    if is_first:
        dist.sum_(counts)
    own.over_ranks = counts if own.over_ranks is None else own.over_ranks + counts
    known, objects, images, all_objects = (own.over_ranks[index] for index in range(4))
    mean = known / ops.clamp(objects, low=1.0) + (1.0 - ops.clamp(objects, high=1.0))
    return known + mean * (all_objects - objects), images


def _make_cells(
    images: int, grids: Sequence[tuple[int, int]], strides: Sequence[int], dtype: str, device: str
) -> Cells:
    levels = [np.stack(np.meshgrid(np.arange(w), np.arange(h)), -1) for h, w in grids]
    centres = np.concatenate([level.reshape(-1, 2) + 0.5 for level in levels])
    of_cell = np.repeat(strides, [height * width for height, width in grids]).reshape(-1, 1)
    return Cells(
        *(ops.tensor(np.tile(x, (images, 1)).astype(dtype), device) for x in (centres, of_cell))
    )
