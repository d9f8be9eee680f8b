"""Prototypes, coefficients and boxes -> masks in the graph, as many as NMS lets through.

Before: `suppressed.py`. After: the outputs of the graph. The masks are those of
`utils/masks/assemble.py` at the size of the prototypes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backend.onnx import ops
from backend.onnx.recording import Tensor, apply, constant, size_tensor


def masks_in_boxes(
    prototypes: Tensor, coefficients: Tensor, boxes_xyxy: Tensor, input_size: Sequence[int]
) -> Tensor:
    """Return (B, K, h, w) float32: how probable each place is the object's, 0 outside its box.

    Args:
        prototypes: (B, M, h, w) float32.
        coefficients: (B, K, M) float32.
        boxes_xyxy: (B, K, 4) float32, pixels of the input; one without a side has no mask.
        input_size: (H, W) of the input.
    """
    batch, number, height, width = prototypes.shape
    flat = prototypes.reshape(batch, number, height * width)
    found = coefficients.shape[1]
    scores = ops.sigmoid(ops.matmul(coefficients, flat)).reshape(batch, found, height, width)
    cells = ops.cells(height, width, prototypes)[0]  # (1, h, w, 2): column, row
    for axis, (side, pixels) in enumerate(((width, input_size[1]), (height, input_size[0]))):
        scale = _number(side) / _number(pixels)
        places = cells[..., axis].reshape(1, 1, height, width)
        first, end = (
            (boxes_xyxy[..., column] * scale).reshape(batch, found, 1, 1)
            for column in (axis, axis + 2)
        )
        scores = _where(first > places, None, scores)
        scores = _where(end > places, scores, None)
    return scores


def _where(condition: Tensor, x: Tensor | None, y: Tensor | None) -> Tensor:
    """Return x where the condition holds, else y; None stands for 0."""
    x, y = (constant(np.zeros((), np.float32)) if side is None else side for side in (x, y))
    return apply("Where", (condition, x, y), condition.shape, "float32")


def _number(size: int) -> Tensor:
    """Return a size as a float32 tensor, (1,)."""
    return ops.cast(size_tensor(size), "float32")
