"""The cross-entropy of masks, with its gradient in closed form, piece by piece.

Before: `positives.py` says which masks. After: `loss.py` averages. A mask has a number for each
cell of its image, and an autograd would keep several such maps of every positive until the
backward pass: gigabytes for crowded images. Here a piece is forgotten once its cost and its
gradient are added, so that memory does not grow with the number of objects.
"""

from __future__ import annotations

from backend import ops
from backend.contract import Tensor
from models.heads.mask.positives import MaskPieces, Piece


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
