"""The cross-entropy of masks, with its gradient in closed form, piece by piece.

Before: `positives.py` says which masks. After: `loss.py` averages. A mask has a number for each
cell of its image, and an autograd would keep several such maps of every positive until the
backward pass: gigabytes for crowded images. Here a piece is forgotten once its cost and its
gradient are added, so that memory does not grow with the number of objects.
"""

from __future__ import annotations

import numpy as np

from backend import ops
from backend.contract import Tensor
from models.heads.mask.positives import MaskPieces, Piece, Window


def cost_of_masks(coefficients: Tensor, prototypes: Tensor, masks: MaskPieces) -> Tensor:
    """Return the weighted sum of the cross-entropies of all cells of all masks, 0-d.

    With logits z = coefficients @ prototypes, truth y and weights w the gradient by z is
    w * (sigmoid(z) - y). What is returned is linear in coefficients and prototypes, by their
    gradients, and has the value of the cost.

    Args:
        coefficients: (P, M) of the positives of all levels.
        prototypes: (B, M, h, w).
    """
    if not masks.pieces:
        return ops.sum(prototypes.reshape(-1)[:0])
    device = ops.device_of(prototypes)
    taken = ops.take_rows(coefficients, ops.tensor(masks.order, device))
    cost = _Cost(taken.detach(), prototypes.detach(), masks, taken.requires_grad)
    for piece in masks.pieces:
        cost.add(piece)
    if not taken.requires_grad:
        return cost.value
    linear = ops.sum(taken * ops.cat(cost.by_row)) + ops.sum(prototypes * ops.stack(cost.by_image))
    return cost.value + (linear - linear.detach())


class _Cost:
    """The cost of the pieces so far.

    Attributes:
        value: 0-d.
        by_row: gradients (K, M) by the coefficients of each piece.
        by_image: gradients (M, h, w) by the prototypes of each image.
    """

    def __init__(
        self, coefficients: Tensor, prototypes: Tensor, masks: MaskPieces, has_gradient: bool
    ) -> None:
        self._dtype, device = ops.dtype_of(prototypes), ops.device_of(prototypes)
        self._coefficients, self._prototypes = coefficients, prototypes
        integer = masks.maps.dtype == np.uint8
        self._maps = ops.tensor(masks.maps if integer else masks.maps.astype(self._dtype), device)
        self._numbers = ops.tensor(masks.numbers.astype(self._dtype), device)
        images, _, *size = prototypes.shape
        self._rows, self._columns = (
            ops.tensor(np.arange(side, dtype=self._dtype), device) for side in size
        )
        self._has_gradient = has_gradient
        self.value = ops.zeros((), self._dtype, device)
        self.by_row: list[Tensor] = []
        self.by_image = [ops.zeros(prototypes.shape[1:], self._dtype, device)] * images

    def add(self, piece: Piece) -> None:
        top, left, bottom, right = piece.window
        basis = self._prototypes[piece.image, :, top:bottom, left:right]
        basis = basis.reshape(basis.shape[0], piece.window.cells)
        rows, numbers = self._coefficients[piece.rows], self._numbers[piece.rows]
        logits = ops.matmul(rows, basis)
        truth, weights = self._truth(piece, numbers), self._weights(piece.window, numbers)
        self.value = self.value + ops.sum(ops.bce_terms(logits, truth) * weights)
        if not self._has_gradient:
            return
        slope = (ops.sigmoid(logits) - truth) * weights
        self.by_row.append(ops.matmul(slope, basis.permute(1, 0)))
        by_window = ops.matmul(rows.permute(1, 0), slope)
        by_window = by_window.reshape(-1, bottom - top, right - left)
        size = self._prototypes.shape[2:]
        self.by_image[piece.image] = self.by_image[piece.image] + placed(
            by_window, piece.window, (size[0], size[1])
        )

    def _truth(self, piece: Piece, numbers: Tensor) -> Tensor:
        """Return (K, cells): 1 where the object is, else 0."""
        top, left, bottom, right = piece.window
        values = self._maps[piece.map_index, top:bottom, left:right].reshape(1, piece.window.cells)
        distance = ops.cast(values, self._dtype) - numbers[:, 4:5]
        return ops.cast(distance**2 < 0.25, self._dtype)  # whole numbers

    def _weights(self, window: Window, numbers: Tensor) -> Tensor:
        """Return (K, cells): the weight of each mask inside its box, else 0."""
        rows = _inside(self._rows[window.top : window.bottom], numbers[:, 0:1], numbers[:, 2:3])
        columns = _inside(
            self._columns[window.left : window.right], numbers[:, 1:2], numbers[:, 3:4]
        )
        count = numbers.shape[0]
        rows = (rows * numbers[:, 5:6]).reshape(count, -1, 1)
        return (rows * columns.reshape(count, 1, -1)).reshape(count, window.cells)


def _inside(cells: Tensor, first: Tensor, end: Tensor) -> Tensor:
    """Return (K, cells): 1 from first (K, 1) to before end, else 0."""
    cells, dtype = cells.reshape(1, -1), ops.dtype_of(cells)
    return ops.cast(cells >= first, dtype) * ops.cast(cells < end, dtype)


def placed(x: Tensor, window: Window, size: tuple[int, int]) -> Tensor:
    """Return x (M, H, W) at its window in a map of zeros (M, *size)."""
    dtype, device, count = ops.dtype_of(x), ops.device_of(x), x.shape[0]
    width = window.right - window.left
    above, below = window.top, size[0] - window.bottom
    rows = [ops.zeros((count, n, width), dtype, device) for n in (above, below)]
    x = ops.cat([rows[0], x, rows[1]], 1)
    before, after = window.left, size[1] - window.right
    columns = [ops.zeros((count, size[0], n), dtype, device) for n in (before, after)]
    return ops.cat([columns[0], x, columns[1]], 2)
