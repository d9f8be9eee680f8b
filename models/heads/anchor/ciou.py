"""Complete IoU of paired boxes, the box term of `loss.py`: what every fused form must equal.

Source: Zheng et al. 2020, arXiv:1911.08287. The trade-off alpha is held constant in the
backward pass, as its authors do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from backend import ops
from backend.contract import Tensor

# (pred, target), (N, 4) cxcywh each -> (N,): `complete_iou`, or `backend.fused.complete_iou`.
BoxIou = Callable[[Tensor, Tensor], Tensor]


def complete_iou(pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
    """Return the CIoU of boxes paired row by row.

    Args:
        pred: (N, 4) cxcywh, any one unit.
        target: (N, 4), same format, unit and dtype.
        eps: added to denominators, so that zero-area boxes give a finite value.

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
    # Rounding makes the IoU of equal boxes larger than 1 at times.
    trade_off = (aspect / (aspect - ops.clamp(iou, high=1.0) + (1 + eps))).detach()
    return iou - (distance_squared / diagonal_squared + aspect * trade_off)


def _edges(centre: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    half = size / 2
    return centre - half, centre + half


def _overlap(low: Tensor, high: Tensor, other_low: Tensor, other_high: Tensor) -> Tensor:
    """Return length shared by two intervals; 0 when they are apart."""
    return ops.clamp(ops.minimum(high, other_high) - ops.maximum(low, other_low), low=0.0)
