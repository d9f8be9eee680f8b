"""What the numbers of a raw map mean: logits -> boxes in cells or pixels, and scores.

Source: the public YOLOv5 v6 head.
"""

from __future__ import annotations

import math

from backend import ops
from backend.contract import Tensor

BOX_CHANNELS = 4  # of an output: cx, cy, w, h, then objectness, then the classes


def decode_logits(
    logits: Tensor, cells: Tensor, anchors: Tensor, stride: int, num_added: int = 0
) -> Tensor:
    """Map (..., 5 + C) of one level, with their cells and anchors (..., 2), to pixels and scores.

    num_added: further numbers at the end of a row, which stay as they are.
    """
    last = logits.shape[-1] - num_added
    scores = ops.sigmoid(logits[..., :last] if num_added else logits)
    centres = decode_centres(scores[..., 0:2]) + cells
    sizes = decode_sizes(scores[..., 2:4], anchors * stride)
    added = [logits[..., last:]] if num_added else []
    return ops.cat([centres * stride, sizes, scores[..., 4:], *added], dim=logits.ndim - 1)


def decode_centres(scores: Tensor) -> Tensor:
    """Map sigmoids in (0, 1) to centre offsets from the cell's corner in (-0.5, 1.5) cells."""
    return scores * 2.0 - 0.5


def decode_sizes(scores: Tensor, anchors: Tensor) -> Tensor:
    """Map sigmoids in (0, 1) to sizes of up to 4 times the anchor, in the anchor's unit."""
    return (scores * 2.0) ** 2.0 * anchors


def logit(score: float) -> float:
    """Return the inverse of the sigmoid: minus infinity from 0 down."""
    return math.log(score / (1 - score)) if score > 0 else -math.inf
