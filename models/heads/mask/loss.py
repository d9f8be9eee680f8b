"""Loss of boxes and masks: raw maps, prototypes and the assignment to `LossTerms`.

Masks have a value for every cell of the image, and autograd would keep several such maps per
positive until the backward pass: gigabytes for crowded images. Here the gradient is computed in
closed form, and pieces are freed once their cost and gradient are added.

Source: the public YOLOv5 recipe, checked against its stored results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from duet.backend import ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.models.heads.anchor.assign import Assignment
from duet.models.heads.anchor.loss import DetectionLoss, loss_dtype, part_of
from duet.models.heads.base import LossTerms, WholeBatch
from duet.utils.boxes import cxcywh_to_xyxy
from duet.utils.data.loading.batch import TargetMasks, Targets

MOST_NUMBERS = 2**22  # values per piece: positives times cells of their window
Window = tuple[int, int, int, int]  # top, left, bottom, right of cells; the last two exclusive


class SegmentationLoss(DetectionLoss):
    """Box losses, and the cross-entropy of masks inside their objects' boxes.

    Masks are averaged per image and level, then over images, and summed over levels. The term uses
    the box gain. It is never compiled: its pieces have as many shapes as objects.
    """

    def __call__(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None = None
    ) -> LossTerms:
        """Return the loss of a batch or of a piece of it.

        Args:
            raw: per level (B, A, H, W, 5 + C + M), then prototypes (B, M, h, w).
            targets: targets with masks of the same images; if empty, only objectness counts.
            whole: the batch that this is a piece of; None if it is the whole batch.
        """
        *levels, prototypes = raw
        prototypes = ops.cast(prototypes, loss_dtype(prototypes))
        boxes = self.cost_of_boxes(levels, targets, whole)
        images, _, height, width = prototypes.shape
        positives = mask_positives(boxes.assignments, targets, (height, width))
        pieces = pieces_of(positives, targets, (height, width), ops.device_of(prototypes))
        positives = positives._replace(order=boxes.rows[positives.order])
        cost = cost_of_masks(boxes.added, prototypes, positives, pieces) / max(images, 1)
        mask = part_of(cost, boxes.parts and boxes.parts.images) * self.gains.box
        total = boxes.terms.total + mask * (boxes.parts.total if boxes.parts else images)
        losses = {**boxes.terms.by_name, "mask": mask}
        names = ("box", "mask", "objectness", "classification")
        return LossTerms({name: losses[name] for name in names}, total)


class MaskPositives(NamedTuple):
    """The K positives whose boxes contain a cell of the prototypes, ordered by image and object."""

    order: np.ndarray  # (K,) int64, index into the coefficients
    target: np.ndarray  # (K,) int64, index of the object in the batch
    weights: np.ndarray  # (K,) float64, per cell in the object's box
    windows: np.ndarray  # (T, 4) int64, of all objects


class Piece(NamedTuple):
    """K positives of O objects in one image, and a window around their boxes."""

    image: int
    rows: slice  # of `MaskPositives`
    window: Window
    which: np.ndarray  # (K,) int64, index of the object in the piece
    truth: np.ndarray  # (2, O, cells) uint8: 1 inside the object, and inside its box


def cost_of_masks(
    coefficients: Tensor, prototypes: Tensor, positives: MaskPositives, pieces: Iterable[Piece]
) -> Tensor:
    """Return the weighted sum of cross-entropies over all cells of all masks, 0-d.

    With logits z = coefficients @ prototypes, truth y and weights w, the gradient w.r.t. z is
    w * (sigmoid(z) - y). The result has the value of the cost and is linear in coefficients and
    prototypes, with their gradients as factors.

    Args:
        coefficients: (P, M), with the rows that `positives.order` names.
        prototypes: (B, M, h, w).
    """
    dtype, device = ops.dtype_of(prototypes), ops.device_of(prototypes)
    taken = ops.take_rows(coefficients, ops.tensor(positives.order, device))
    weights = ops.tensor(positives.weights.astype(dtype), device)
    has_gradient = taken.requires_grad or prototypes.requires_grad
    fixed, weighted = taken.detach(), taken.detach() * weights.reshape(-1, 1)
    by_mask = [ops.zeros((0,), dtype, device)]  # unweighted costs (K,) of each piece's masks
    by_row = [ops.zeros((0, fixed.shape[1]), dtype, device)]  # their gradients (K, M)
    by_prototype = ops.zeros(prototypes.shape if has_gradient else (0,), dtype, device)
    for piece in pieces:
        top, left, bottom, right = piece.window
        place = piece.image, slice(None), slice(top, bottom), slice(left, right)
        basis = prototypes.detach()[place]
        shape = basis.shape
        basis = basis.reshape(shape[0], shape[1] * shape[2])
        logits = ops.matmul(fixed[piece.rows], basis)
        which, truth = ops.tensor(piece.which, device), ops.tensor(piece.truth, device)
        is_there, is_box = (ops.take_rows(ops.cast(truth[i], dtype), which) for i in range(2))
        by_mask.append(ops.sum(ops.bce_terms(logits, is_there) * is_box, 1))
        if has_gradient:
            slope = (ops.sigmoid(logits) - is_there) * is_box
            by_row.append(ops.matmul(slope, basis.permute(1, 0)))
            by_basis = ops.matmul(weighted[piece.rows].permute(1, 0), slope)
            ops.add_at_(by_prototype, place, by_basis.reshape(*shape))
    value = ops.sum(ops.cat(by_mask) * weights)
    if not has_gradient:
        return value
    # Even without masks: all ranks must average gradients of the same parameters.
    linear = ops.sum(taken * (ops.cat(by_row) * weights.reshape(-1, 1)))
    linear = linear + ops.sum(prototypes * by_prototype)
    return value + (linear - linear.detach())


def mask_positives(
    assignments: Sequence[Assignment], targets: Targets, size: tuple[int, int]
) -> MaskPositives:
    """Return the positives of all levels that have a mask.

    A positive's weight is 1 / (positives of its image and level) / (area of its box).

    Args:
        size: (height, width) of the prototypes.
    """
    target = np.concatenate([level.target_index for level in assignments])
    windows = box_windows(targets.boxes_cxcywh_norm, size)
    order = np.lexsort((target, windows[target, 0], targets.image_index[target]))
    order = order[np.all(windows[:, 2:] > windows[:, :2], axis=1)[target[order]]]
    areas = targets.boxes_cxcywh_norm[:, 2:].astype(np.float64).prod(axis=1) * np.prod(size)
    in_its_image = [np.bincount(level.image_index)[level.image_index] for level in assignments]
    weights = 1 / np.concatenate(in_its_image)[order] / areas[target[order]]
    return MaskPositives(order, target[order], weights, windows)


def box_windows(boxes_cxcywh_norm: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the cells whose corner is in each box, (T, 4) int64, as `Window`; may be empty."""
    height, width = size
    edges = cxcywh_to_xyxy(boxes_cxcywh_norm * np.array([width, height, width, height], np.float32))
    edges = np.clip(np.ceil(edges), 0, [width, height, width, height])
    return edges[:, [1, 0, 3, 2]].astype(np.int64)


def pieces_of(
    positives: MaskPositives, targets: Targets, size: tuple[int, int], device: str
) -> Iterator[Piece]:
    """Yield pieces of at most `MOST_NUMBERS` values, or of one positive.

    On a CPU each object is a piece, to save the cells of joint windows outside boxes; a GPU
    computes all objects of an image in the time of one.

    Args:
        targets: with masks in maps of any size; masks may be missing without positives.
        size: (height, width) of the prototypes.
    """
    target = positives.target
    if not len(target):
        return
    assert targets.masks is not None, "objects without masks"
    masks, image = resized(targets.masks, size), targets.image_index[target]
    is_first = np.diff(target, prepend=-1) != 0  # of its object
    objects, number = target[is_first], np.cumsum(is_first) - 1
    ends = np.flatnonzero(np.diff(target if device == CPU else image)) + 1
    for first, end in pairwise((0, *ends.tolist(), len(target))):
        own = positives.windows[target[first:end]]
        (top, left), (bottom, right) = own[:, :2].min(0).tolist(), own[:, 2:].max(0).tolist()
        most = max(MOST_NUMBERS // ((bottom - top) * (right - left)), 1)
        for start in range(first, end, most):
            rows, window = slice(start, min(start + most, end)), (top, left, bottom, right)
            which = number[rows] - number[start]
            shown = objects[number[start] : number[rows.stop - 1] + 1]
            truth = truth_of(shown, positives.windows, masks, window)
            yield Piece(int(image[first]), rows, window, which, truth)


def truth_of(
    objects: np.ndarray, windows: np.ndarray, masks: TargetMasks, around: Window
) -> np.ndarray:
    """Return `Piece.truth` of objects, given the window around their own."""
    first_row, first_column, last_row, last_column = around
    size = last_row - first_row, last_column - first_column
    truth = np.zeros((2, len(objects), *size), np.uint8)
    for place, index in enumerate(objects):
        top, left, bottom, right = windows[index].tolist()
        values = masks.maps[masks.map_index[index], top:bottom, left:right]
        rows = slice(top - first_row, bottom - first_row)
        columns = slice(left - first_column, right - first_column)
        truth[0, place, rows, columns] = values == masks.value[index]
        truth[1, place, rows, columns] = 1
    return truth.reshape(2, len(objects), -1)


def resized(masks: TargetMasks, size: tuple[int, int]) -> TargetMasks:
    """Resize masks; each cell takes the value at its top left."""
    height, width = masks.maps.shape[1:]
    if (height, width) == size:
        return masks
    rows = np.arange(size[0]) * height // size[0]
    maps = masks.maps[:, rows[:, None], np.arange(size[1]) * width // size[1]]
    return masks._replace(maps=maps)
