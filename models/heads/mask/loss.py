"""Loss of boxes and masks: raw maps, prototypes and the assignment to `LossTerms`.

Masks have a value for every cell of a box, and autograd would keep several such maps per positive
until the backward pass: gigabytes for crowded images. Here the gradient is computed in closed form,
piece by piece, and a piece is freed once its cost and gradient are added.

Source: the public YOLOv5 recipe, checked against its stored results.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from duet.backend import ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.models.heads.anchor.assign import Assignment
from duet.models.heads.anchor.loss import DetectionLoss
from duet.models.heads.base import LossTerms, WholeBatch, loss_dtype
from duet.utils.data.loading.batch import TargetMasks, Targets
from duet.utils.geometry.boxes import cxcywh_to_xyxy

# Values per piece: positives times cells of their patches. And of gradients that are added at once.
MOST_NUMBERS = 2**23
PATCHES = (8, 4, 2, 1)  # sides of an image in those of a patch, on a GPU
ROWS = 8  # a GPU computes a multiple of it per object, so that shapes repeat


class SegmentationLoss(DetectionLoss):
    """Box losses, and the cross-entropy of masks inside their objects' boxes.

    Masks are averaged per image and level, then over images, and summed over levels. The term uses
    the box gain. It is never compiled: its pieces have several shapes.
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
        positives = positives._replace(order=boxes.rows[positives.order])
        pieces = list(pieces_of(positives, (height, width), ops.device_of(prototypes)))
        cost = cost_of_masks(boxes.added, prototypes, targets, positives, pieces) / max(images, 1)
        cost = cost * boxes.parts.images if boxes.parts else cost
        mask = cost * self.gains.box
        total = boxes.terms.total + mask * (boxes.parts.total if boxes.parts else images)
        losses = {**boxes.terms.by_name, "mask": mask}
        names = ("box", "mask", "objectness", "classification")
        return LossTerms({name: losses[name] for name in names}, total)


class MaskPositives(NamedTuple):
    """The P positives whose boxes contain a cell of the prototypes, ordered by object."""

    order: np.ndarray  # (P,) int64, index into the coefficients
    target: np.ndarray  # (P,) int64, index of the object in the batch
    weights: np.ndarray  # (P,) float64, per cell in the object's box
    windows: np.ndarray  # (T, 4) int64, of all objects: top, left, bottom, right of cells


class Piece(NamedTuple):
    """N objects with K rows each, and a patch of cells around each object's box."""

    rows: np.ndarray  # (N, K) int64, indices into `MaskPositives`; the last of an object repeats
    weights: np.ndarray  # (N, K) float64, 0 for repeated rows
    corners: np.ndarray  # (N, 2) int64, first row and column of the patches
    size: tuple[int, int]  # (height, width) of the patches


def cost_of_masks(
    coefficients: Tensor,
    prototypes: Tensor,
    targets: Targets,
    positives: MaskPositives,
    pieces: Sequence[Piece],
) -> Tensor:
    """Return the weighted sum of cross-entropies over all cells of all masks, 0-d.

    With logits z = prototypes @ coefficients, truth y and weights w, the gradient w.r.t. z is
    w * (sigmoid(z) - y). The result has the value of the cost and is linear in coefficients and
    prototypes, with their gradients as factors.

    Args:
        coefficients: (P, M), with the rows that `positives.order` names.
        prototypes: (B, M, h, w).
    """
    dtype, device = ops.dtype_of(prototypes), ops.device_of(prototypes)
    images, channels, height, width = prototypes.shape
    flat = prototypes.permute(0, 2, 3, 1).reshape(images * height * width, channels)
    chosen = np.concatenate([np.zeros(0, np.int64), *(piece.rows.reshape(-1) for piece in pieces)])
    shares = np.concatenate([np.zeros(0), *(piece.weights.reshape(-1) for piece in pieces)])
    taken = ops.take_rows(coefficients, ops.tensor(positives.order[chosen], device))
    weights = ops.tensor(shares.astype(dtype).reshape(-1, 1), device)
    has_gradient = taken.requires_grad or prototypes.requires_grad
    fixed, weighted, fixed_basis = taken.detach(), taken.detach() * weights, flat.detach()
    by_mask = [ops.zeros((0, 1), dtype, device)]  # unweighted cost of each row
    by_row = [ops.zeros((0, channels), dtype, device)]  # its gradient
    by_cell = ops.zeros(flat.shape if has_gradient else (0,), dtype, device)
    unadded: list[tuple[Tensor, Tensor]] = []  # cells of patches, and their gradients
    maps, objects = objects_of(pieces, positives, targets, (height, width), device)
    end = waiting = 0
    for piece, of_piece in zip(pieces, objects, strict=True):
        shape, start, end = (*piece.rows.shape, channels), end, end + piece.rows.size
        cells, is_there, is_box = truth_of(of_piece, piece.size, width, maps, dtype)
        is_there = is_there + ops.zeros((1, shape[1], 1), dtype, device)
        number = is_there.shape[2]
        basis = ops.take_rows(fixed_basis, cells).reshape(shape[0], number, channels)
        logits = ops.matmul(fixed[start:end].reshape(*shape), basis.permute(0, 2, 1))
        costs = ops.sum(ops.bce_terms(logits, is_there) * is_box, 2)
        by_mask.append(costs.reshape(end - start, 1))
        if has_gradient:
            slope = (ops.sigmoid(logits) - is_there) * is_box
            by_row.append(ops.matmul(slope, basis).reshape(end - start, channels))
            by_basis = ops.matmul(slope.permute(0, 2, 1), weighted[start:end].reshape(*shape))
            unadded.append((cells, by_basis.reshape(shape[0] * number, channels)))
            waiting += shape[0] * number * channels
            if waiting >= MOST_NUMBERS or end == len(chosen):
                ops.add_rows_(by_cell, *map(ops.cat, zip(*unadded, strict=True)))
                unadded, waiting = [], 0
    value = ops.sum(ops.cat(by_mask) * weights)
    if not has_gradient:
        return value
    # Even without masks: all ranks must average gradients of the same parameters.
    linear = ops.sum(taken * (ops.cat(by_row) * weights)) + ops.sum(flat * by_cell)
    return value + (linear - linear.detach())


def objects_of(
    pieces: Sequence[Piece],
    positives: MaskPositives,
    targets: Targets,
    size: tuple[int, int],
    device: str,
) -> tuple[Tensor, list[Tensor]]:
    """Return the targets' maps on the device, flat, and the objects of each piece, (7, N, 1) int64.

    Of an object: the flat indices of its patch's first cell over (B, h, w) and over the maps; its
    value in its map; top, left, bottom and right of its box in the patch.

    Args:
        size: (height, width) of the prototypes.
    """
    if not pieces:
        return ops.zeros((0,), "uint8", device), []
    assert targets.masks is not None, "objects without masks"
    masks = resized(targets.masks, size)
    target = np.concatenate([positives.target[piece.rows[:, 0]] for piece in pieces])
    corners = np.concatenate([piece.corners for piece in pieces])
    inside = corners[:, 0] * size[1] + corners[:, 1]
    firsts = (
        of_map[target] * size[0] * size[1] + inside
        for of_map in (targets.image_index, masks.map_index)
    )
    boxes = positives.windows[target] - np.tile(corners, 2)
    fields = np.stack([*firsts, masks.value[target].astype(np.int64), *boxes.T])
    table = ops.tensor(fields[..., None], device)
    ends = accumulate(len(piece.rows) for piece in pieces)
    found = [table[:, e - len(p.rows) : e] for p, e in zip(pieces, ends, strict=True)]
    return ops.tensor(masks.maps.reshape(-1), device), found


def truth_of(
    objects: Tensor, size: tuple[int, int], width: int, maps: Tensor, dtype: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cells of N patches, flat, and whether each is in its object and in its box.

    width: of the prototypes.

    Returns:
        (N * cells,) int64, and (N, 1, cells) twice: 1 or 0.
    """
    device, count, number = ops.device_of(maps), objects.shape[1], size[0] * size[1]
    first, first_in_maps, value, top, left, bottom, right = (objects[i] for i in range(7))
    rows, columns = (ops.arange(side, "int64", device) for side in size)
    within = (rows.reshape(-1, 1) * width + columns).reshape(1, number)
    shown = ops.take_rows(maps, (first_in_maps + within).reshape(count * number))
    shown = ops.cast(shown, "int64").reshape(count, number)
    in_rows = _between(rows, top, bottom, dtype).reshape(count, size[0], 1)
    in_columns = _between(columns, left, right, dtype).reshape(count, 1, size[1])
    return (
        (first + within).reshape(count * number),
        _between(shown, value, value + 1, dtype).reshape(count, 1, number),
        (in_rows * in_columns).reshape(count, 1, number),
    )


def _between(places: Tensor, first: Tensor, end: Tensor, dtype: str) -> Tensor:
    return ops.cast(places >= first, dtype) * ops.cast(places < end, dtype)


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
    order = np.argsort(target, kind="stable")
    order = order[np.all(windows[:, 2:] > windows[:, :2], axis=1)[target[order]]]
    areas = targets.boxes_cxcywh_norm[:, 2:].astype(np.float64).prod(axis=1) * np.prod(size)
    in_its_image = [np.bincount(level.image_index)[level.image_index] for level in assignments]
    weights = 1 / np.concatenate(in_its_image)[order] / areas[target[order]]
    return MaskPositives(order, target[order], weights, windows)


def box_windows(boxes_cxcywh_norm: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the cells whose corner is in each box, (T, 4) int64: top, left, bottom and
    right, the last two exclusive. Boxes may have none."""
    height, width = size
    edges = cxcywh_to_xyxy(boxes_cxcywh_norm * np.array([width, height, width, height], np.float32))
    edges = np.clip(np.ceil(edges), 0, [width, height, width, height])
    return edges[:, [1, 0, 3, 2]].astype(np.int64)


def pieces_of(positives: MaskPositives, size: tuple[int, int], device: str) -> Iterator[Piece]:
    """Yield pieces of at most `MOST_NUMBERS` values, or of one object.

    On a CPU each object is a piece, whose patch is its box. A GPU computes many objects in the time
    of one: those with patches of one of four sizes are joined, with as many rows each.

    size: (height, width) of the prototypes.
    """
    starts = np.flatnonzero(np.diff(positives.target, prepend=-1))
    counts = np.diff(starts, append=len(positives.target))
    boxes = positives.windows[positives.target[starts]]
    sides = boxes[:, 2:] - boxes[:, :2]
    if device == CPU:
        for start, count, box, side in zip(starts, counts, boxes, sides.tolist(), strict=True):
            rows = np.arange(start, start + count)[None]
            yield Piece(rows, positives.weights[rows], box[None, :2], tuple(side))
        return
    patches = -(-np.array(size) // np.array(PATCHES)[:, None])
    kinds = np.all(sides[:, None] <= patches, axis=2).argmax(axis=1)
    for kind, patch in enumerate(patches.tolist()):
        objects = np.flatnonzero(kinds == kind)
        most = -(-counts[objects].max(initial=1) // ROWS) * ROWS
        number = max(MOST_NUMBERS // (most * patch[0] * patch[1]), 1)
        for first in range(0, len(objects), number):
            chosen = objects[first : first + number]
            own = np.arange(most) < counts[chosen, None]
            rows = starts[chosen, None] + np.minimum(np.arange(most), counts[chosen, None] - 1)
            corners = np.minimum(boxes[chosen, :2], np.array(size) - patch)
            yield Piece(rows, positives.weights[rows] * own, corners, tuple(patch))


def resized(masks: TargetMasks, size: tuple[int, int]) -> TargetMasks:
    """Resize masks; each cell takes the value at its top left."""
    height, width = masks.maps.shape[1:]
    if (height, width) == size:
        return masks
    rows = np.arange(size[0]) * height // size[0]
    maps = masks.maps[:, rows[:, None], np.arange(size[1]) * width // size[1]]
    return masks._replace(maps=maps)
