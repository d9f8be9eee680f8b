"""Fast paths for OneFlow; see `contract.Fused`."""

import math
from typing import Any

import oneflow
from oneflow import Tensor

from duet.backend import checks
from duet.backend.oneflow.nn import BatchNorm2d

HALF_PRECISIONS = (oneflow.float16, oneflow.bfloat16)


def complete_iou(pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
    checks.box_pairs(pred.shape, target.shape)
    target = target.detach()
    pred, target = (x.float() if x.dtype in HALF_PRECISIONS else x for x in (pred, target))
    if len(pred) == 0:
        return pred.sum(1)  # the kernels abort the process for empty input
    with oneflow.no_grad():
        value, gradient = _value_and_gradient(pred, target, eps)
    return _WithGradient.apply(pred, value, gradient)


def batch_norm_silu(norm: BatchNorm2d, x: Tensor) -> Tensor:
    return oneflow.nn.functional.silu(norm(x))


def finish_problem(device: str) -> str | None:
    return "OneFlow 0.9 cannot compile its operations into one"


def finish_images(
    images: Tensor, tables: Tensor, changes: Tensor, dtype: str, channels_last: bool = False
) -> Tensor:
    raise ValueError(f"{finish_problem('')}; accepted: images finished by OpenCV")


class _WithGradient(oneflow.autograd.Function):
    """A value (N,) with its precomputed gradient w.r.t. pred (N, 4), given as (4, N)."""

    @staticmethod
    def forward(ctx: Any, pred: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * outer).t(), None, None


def _value_and_gradient(pred: Tensor, target: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return CIoU and its gradient w.r.t. pred; formulas: `contract.Fused.complete_iou`.

    Comparisons are avoided: in OneFlow they take 20 times as long as arithmetic.

    Args:
        pred: (N, 4) cxcywh.
        target: (N, 4).

    Returns:
        (N,) and (4, N).
    """
    boxes, boxes_target = pred.t().contiguous(), target.t().contiguous()
    overlap, hull, high_side, low_side = _extents(boxes, boxes_target)
    sizes, sizes_target = boxes[2:], boxes_target[2:]
    (width, height), (width_target, height_target) = sizes.unbind(0), sizes_target.unbind(0)

    shared_x, shared_y = oneflow.clamp(overlap, 0.0, None).unbind(0)
    intersection = shared_x * shared_y
    union = width * height + width_target * height_target - intersection + eps
    iou = intersection / union
    hull_x, hull_y = hull.unbind(0)
    diagonal_squared = hull_x * hull_x + hull_y * hull_y + eps
    offset = boxes[:2] - boxes_target[:2]
    offset_x, offset_y = offset.unbind(0)
    distance = (offset_x * offset_x + offset_y * offset_y) / diagonal_squared
    tall, tall_target = height + eps, height_target + eps
    cross, dot = (
        width_target * tall - width * tall_target,
        tall * tall_target + width * width_target,
    )
    angle = oneflow.atan(cross / dot) * (2 / math.pi)
    aspect = angle * angle
    trade_off = aspect / (aspect - oneflow.clamp(iou, None, 1.0) + (1 + eps))
    value = iou - distance - aspect * trade_off

    # Gradients w.r.t. the sides of hull and overlap; 0 where the boxes are apart.
    by_hull = hull * (distance / diagonal_squared * 2.0)
    meets = oneflow.clamp(oneflow.sign(oneflow.minimum(*overlap.unbind(0))) + 1.0, None, 1.0)
    by_overlap = oneflow.stack((shared_y, shared_x), 0) * ((iou + meets) / union)
    both_grow, hull_grows = (by_hull + by_overlap) * 0.5, (by_hull - by_overlap) * 0.5
    by_high, by_low = high_side * hull_grows, low_side * hull_grows
    by_centre = by_high + by_low - offset * (2.0 / diagonal_squared)
    # Gradients through pred's area in the union and through the angle; trade_off is constant.
    by_area = iou / union
    by_angle = trade_off * angle * (4 / math.pi) / (tall * tall + width * width)
    by_width, by_height = by_angle * tall - by_area * height, (by_angle + by_area) * width
    by_size = both_grow + (by_high - by_low) * 0.5 + oneflow.stack((by_width, -by_height), 0)
    return value, oneflow.cat((by_centre, by_size), 0)


def _extents(boxes: Tensor, boxes_target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return overlap (negative where apart) and hull of the pairs per axis, (2, N) each.

    Then the contract's high and low: on which side of target's edges pred's edges lie.
    """
    highs, lows = zip(*map(_edges, (boxes, boxes_target)), strict=True)
    overlap = oneflow.minimum(*highs) - oneflow.maximum(*lows)
    hull = oneflow.maximum(*highs) - oneflow.minimum(*lows)
    return overlap, hull, oneflow.sign(highs[0] - highs[1]), oneflow.sign(lows[0] - lows[1])


def _edges(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Return (right, bottom) and (left, top), (2, N) each, for (4, N) cxcywh."""
    half = boxes[2:] * 0.5
    return boxes[:2] + half, boxes[:2] - half
