"""The loss of boxes and masks: raw maps, prototypes and the assignment -> `LossTerms`.

A mask has a number for each cell of its image, and an autograd would keep several such maps of
every positive until the backward pass: gigabytes for crowded images. Here the gradient is computed
in closed form, and a piece is forgotten once its cost and gradient are added.

Source: the public YOLOv5 recipe, by its stored results.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend import ops
from backend.contract import Tensor
from models.heads.anchor.loss import DetectionLoss, part_of
from models.heads.base import LossTerms, WholeBatch
from models.heads.mask.positives import MaskPieces, Piece, pieces_of
from models.heads.parts import loss_dtype
from utils.data.loading.batch import Targets


class SegmentationLoss(DetectionLoss):
    """The loss of boxes, and the cross-entropy of masks inside the boxes of their objects.

    The masks of an image and level are averaged, then the images; the levels add up. The term has
    the gain of the box loss. It is never compiled: its pieces have as many shapes as objects.
    """

    def __call__(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None = None
    ) -> LossTerms:
        """Return the cost of a batch, or of a piece of it.

        Args:
            raw: per level (B, A, H, W, 5 + C + M), then prototypes (B, M, h, w).
            targets: of the same images, with masks; may be empty; then only objectness counts.
            whole: of which they are a piece; None for all of it.
        """
        *levels, prototypes = raw
        prototypes = ops.cast(prototypes, loss_dtype(prototypes))
        boxes = self.cost_of_boxes(levels, targets, whole)
        images, _, height, width = prototypes.shape
        pieces = pieces_of(boxes.assignments, targets, (height, width), ops.device_of(prototypes))
        cost = cost_of_masks(ops.cat(boxes.added), prototypes, pieces) / max(images, 1)
        mask = part_of(cost, boxes.parts and boxes.parts.images) * self.gains.box
        total = boxes.terms.total + mask * (boxes.parts.total if boxes.parts else images)
        losses = {**boxes.terms.by_name, "mask": mask}
        names = ("box", "mask", "objectness", "classification")
        return LossTerms({name: losses[name] for name in names}, total)


def cost_of_masks(coefficients: Tensor, prototypes: Tensor, masks: MaskPieces) -> Tensor:
    """Return the weighted sum of the cross-entropies of all cells of all masks, 0-d.

    With logits z = coefficients @ prototypes, truth y and weights w the gradient by z is
    w * (sigmoid(z) - y). What is returned is linear in coefficients and prototypes, by their
    gradients, and has the value of the cost.

    Args:
        coefficients: (P, M) of the positives of all levels.
        prototypes: (B, M, h, w).
    """
    taken = ops.take_rows(coefficients, ops.tensor(masks.order, ops.device_of(prototypes)))
    has_gradient = taken.requires_grad or prototypes.requires_grad
    cost = _Cost(taken.detach(), prototypes.detach(), masks, has_gradient)
    for piece in masks.pieces:
        cost.add(piece)
    value = ops.sum(ops.cat(cost.by_mask) * cost.weights)
    if not has_gradient:
        return value
    # Also without any mask: all ranks average the gradients of the same parameters.
    by_row = ops.cat(cost.by_row) * cost.weights.reshape(-1, 1)
    linear = ops.sum(taken * by_row) + ops.sum(prototypes * cost.by_prototype)
    return value + (linear - linear.detach())


class _Cost:
    """The cost of the pieces so far.

    Attributes:
        by_mask: costs (K,) of the masks of each piece, without their weights.
        by_row: their gradients (K, M) by the coefficients.
        by_prototype: gradient (B, M, h, w) of the weighted sum by the prototypes.
    """

    def __init__(
        self, coefficients: Tensor, prototypes: Tensor, masks: MaskPieces, has_gradient: bool
    ) -> None:
        self._dtype, device = ops.dtype_of(prototypes), ops.device_of(prototypes)
        self.weights = ops.tensor(masks.weights.astype(self._dtype), device)
        self._coefficients, self._prototypes = coefficients, prototypes
        self._weighted = coefficients * self.weights.reshape(-1, 1)
        self._which, self._cells = ops.tensor(masks.which, device), ops.tensor(masks.cells, device)
        self._cells_before = 0
        self.by_mask = [ops.zeros((0,), self._dtype, device)]
        self.by_row = [ops.zeros((0, coefficients.shape[1]), self._dtype, device)]
        shape = prototypes.shape if has_gradient else (0,)
        self.by_prototype = ops.zeros(shape, self._dtype, device)
        self._has_gradient = has_gradient

    def add(self, piece: Piece) -> None:
        top, left, bottom, right = piece.window
        place = piece.image, slice(None), slice(top, bottom), slice(left, right)
        basis = self._prototypes[place]
        shape = basis.shape
        basis = basis.reshape(shape[0], piece.window.cells)
        logits = ops.matmul(self._coefficients[piece.rows], basis)
        is_there, is_box = self._next_cells(piece)
        self.by_mask.append(ops.sum(ops.bce_terms(logits, is_there) * is_box, 1))
        if self._has_gradient:
            slope = (ops.sigmoid(logits) - is_there) * is_box
            self.by_row.append(ops.matmul(slope, basis.permute(1, 0)))
            by_basis = ops.matmul(self._weighted[piece.rows].permute(1, 0), slope)
            ops.add_at_(self.by_prototype, place, by_basis.reshape(*shape))

    def _next_cells(self, piece: Piece) -> tuple[Tensor, Tensor]:
        """Return (K, cells) each: 1 where the objects of a piece are, and where their boxes are."""
        objects, cells = len(piece.objects), piece.window.cells
        start, self._cells_before = self._cells_before, self._cells_before + objects * cells
        of_objects = ops.cast(self._cells[:, start : self._cells_before], self._dtype)
        which = self._which[piece.rows]
        is_there, is_box = (
            ops.take_rows(of_objects[index].reshape(objects, cells), which) for index in range(2)
        )
        return is_there, is_box
