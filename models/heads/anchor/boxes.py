"""Decode boxes from raw maps, and compute their CIoU.

Sources: the public YOLOv5 v6 head; Zheng et al. 2020, arXiv:1911.08287. As in the paper, CIoU's
trade-off alpha is constant in the backward pass.
"""

import math
from collections.abc import Callable

from duet.backend import ops
from duet.backend.contract import Tensor

BOX_CHANNELS = 4  # cx, cy, w, h; objectness and classes follow


def decode_logits(
    logits: Tensor, cells: Tensor, anchors: Tensor, stride: int, num_added: int = 0
) -> Tensor:
    """Decode one level's (..., 5 + C), with cells and anchors (..., 2), to pixels and scores.

    num_added: extra values at the end of a row, which are kept unchanged.
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


# Maps (pred, target), (N, 4) cxcywh each, to (N,): `complete_iou` or `backend.fused.complete_iou`.
BoxIou = Callable[[Tensor, Tensor], Tensor]


def complete_iou(pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
    """Return the CIoU of boxes paired row by row.

    Args:
        pred: (N, 4) cxcywh, any unit.
        target: (N, 4), same format, unit and dtype.
        eps: added to denominators to keep zero-area boxes finite.

    Returns:
        (N,) in (-1.5, 1]; (0,) when N is 0.
    """
    pred_width, pred_height = pred[:, 2], pred[:, 3]
    target_width, target_height = target[:, 2], target[:, 3]
    left, right = _edges(pred[:, 0], pred_width)
    top, bottom = _edges(pred[:, 1], pred_height)
    target_left, target_right = _edges(target[:, 0], target_width)
    target_top, target_bottom = _edges(target[:, 1], target_height)

    intersection = _overlap(left, right, target_left, target_right) * _overlap(
        top, bottom, target_top, target_bottom
    )
    union = pred_width * pred_height + target_width * target_height - intersection + eps
    iou = intersection / union

    hull_width = ops.maximum(right, target_right) - ops.minimum(left, target_left)
    hull_height = ops.maximum(bottom, target_bottom) - ops.minimum(top, target_top)
    diagonal_squared = hull_width**2 + hull_height**2 + eps
    distance_squared = (pred[:, 0] - target[:, 0]) ** 2 + (pred[:, 1] - target[:, 1]) ** 2

    angle = ops.atan(target_width / (target_height + eps)) - ops.atan(
        pred_width / (pred_height + eps)
    )
    aspect = angle**2 * (4 / math.pi**2)
    # Rounding can make the IoU of equal boxes exceed 1.
    trade_off = (aspect / (aspect - ops.clamp(iou, high=1.0) + (1 + eps))).detach()
    return iou - (distance_squared / diagonal_squared + aspect * trade_off)


def _edges(centre: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    half = size / 2
    return centre - half, centre + half


def _overlap(low: Tensor, high: Tensor, other_low: Tensor, other_high: Tensor) -> Tensor:
    """Return the overlap of two intervals; 0 if disjoint."""
    return ops.clamp(ops.minimum(high, other_high) - ops.maximum(low, other_low), low=0.0)
