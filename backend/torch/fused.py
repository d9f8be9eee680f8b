"""Fast paths for PyTorch; see `contract.Fused`."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from duet.backend import checks
from duet.backend.checks import CPU
from duet.backend.torch import finishing
from duet.backend.torch.nn import BatchNorm2d
from duet.backend.torch.ops import HALF_PRECISIONS

# Largest |bias| / |weight| of a channel: the normalized map recovered from the result is then
# accurate to 1e-5 in float32.
LARGEST_BIAS = 100.0
LEAST_WEIGHT = 1e-15  # its square is still a normal number

finish_problem = finishing.finish_problem
finish_images = finishing.finish_images


def complete_iou(pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
    checks.box_pairs(pred.shape, target.shape)
    pred, target = (x.float() if x.dtype in HALF_PRECISIONS else x for x in (pred, target))
    return _CompleteIou.apply(pred, target.detach(), eps)


def batch_norm_silu(norm: BatchNorm2d, x: Tensor) -> Tensor:
    if not _can_be_read_off(norm, x):
        return functional.silu(norm(x))
    checks.several_values(x.shape)
    norm.count_batch()
    statistics = norm.running_mean, norm.running_var, norm.momentum, norm.eps
    return _BatchNormSilu.apply(x, norm.weight, norm.bias, *statistics)


def _can_be_read_off(norm: BatchNorm2d, x: Tensor) -> bool:
    """Return whether the layer's input can be recovered from its output in all channels."""
    if not norm.training or norm.over_ranks or torch.compiler.is_compiling():
        return False
    if x.device.type != CPU:  # not measured there
        return False
    if x.dtype in HALF_PRECISIONS or x.dtype != norm.weight.dtype or len(x) == 0:
        return False
    with torch.no_grad():
        size = norm.weight.abs()
        return bool(((norm.bias.abs() < size * LARGEST_BIAS) & (size > LEAST_WEIGHT)).all())


class _BatchNormSilu(torch.autograd.Function):
    """Save BatchNorm's output for the backward pass, and not its input.

    z = weight * n + bias, with n the normalized input. PyTorch's BatchNorm backward computes n as
    (input - mean) * deviation; given z, bias and 1 / weight instead, it gets the same n.
    Idea: Rota Bulò et al. 2018, arXiv:1712.02616.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        eps: float,
    ) -> Tensor:
        z, _, inverse = torch.native_batch_norm(
            x, weight, bias, running_mean, running_var, True, momentum, eps
        )
        ctx.save_for_backward(z, weight, bias, inverse)
        return functional.silu(z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        z, weight, bias, inverse = ctx.saved_tensors
        by_z = torch.ops.aten.silu_backward(outer, z)
        # Compensates for passing 1 / weight as the deviation.
        factor = weight * weight * inverse
        wanted = list(ctx.needs_input_grad[:3])
        found = torch.ops.aten.native_batch_norm_backward(
            by_z, z, factor, None, None, bias, 1 / weight, True, 0.0, wanted
        )
        return (*(g if w else None for g, w in zip(found, wanted, strict=True)), *[None] * 4)


class _CompleteIou(torch.autograd.Function):
    """Compute value and gradient in one pass; backward is a single product."""

    @staticmethod
    def forward(ctx: Any, pred: Tensor, target: Tensor, eps: float) -> Tensor:
        both = torch.cat((pred.t(), target.t())).view(2, 4, len(pred))
        value, gradient = _value_and_gradient(both, eps)
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * outer).t(), None, None


def _value_and_gradient(both: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return CIoU and its gradient w.r.t. pred; formulas: `contract.Fused.complete_iou`.

    It works in place and on long rows: up to 10,000 boxes, call overhead dominates. The code in the
    OneFlow backend would take 1.3 times as long for 100 boxes, 1.6 times for 10,000.

    Args:
        both: (2, 4, N) cxcywh of pred and of target.

    Returns:
        (N,) and (4, N).
    """
    centres, sizes = both[:, :2], both[:, 2:]
    (width, height), (width_target, height_target) = (size.unbind() for size in sizes.unbind())
    overlap, hull, centre_moves, size_moves = _extents(centres, sizes)

    shared = overlap.clamp_min(0.0)
    shared_x, shared_y = shared.unbind()
    iou = shared_x * shared_y
    union = (width * height).addcmul_(width_target, height_target).sub_(iou).add_(eps)
    iou.div_(union)
    hull_x, hull_y = hull.unbind()
    diagonal_squared = (hull_x * hull_x).addcmul_(hull_y, hull_y).add_(eps)
    offset = torch.sub(*centres.unbind())
    offset_x, offset_y = offset.unbind()
    distance = (offset_x * offset_x).addcmul_(offset_y, offset_y).div_(diagonal_squared)
    angle, tall, radius_squared = _angle(sizes, eps)
    aspect = angle * angle
    trade_off = aspect / torch.sub(aspect, iou.clamp_max(1.0)).add_(1 + eps)
    value = torch.sub(iou, distance).addcmul_(aspect, trade_off, value=-1.0)

    # Gradients w.r.t. the sides of the hull, halved, and overlap; 0 where the boxes are apart.
    by_hull = hull.mul_(distance.div_(diagonal_squared))
    meets = torch.minimum(*overlap.unbind()).ge_(0.0)
    by_overlap = shared.flip(0).mul_(meets.add_(iou).div_(union))
    both_grow = torch.add(by_hull, by_overlap, alpha=0.5)
    hull_grows = torch.sub(by_hull, by_overlap, alpha=0.5)
    by_centre = centre_moves.mul_(hull_grows).addcdiv_(offset, diagonal_squared, value=-2.0)
    by_size = both_grow.addcmul_(size_moves, hull_grows, value=0.5)
    # Gradients through pred's area in the union and through the angle; trade_off is constant.
    by_area = iou.div_(union)
    by_angle = trade_off.mul_(angle).div_(radius_squared)
    # Not unbound: PyTorch 2.4 compiles this as if it had a gradient, which such views cannot have.
    by_size[0].addcmul_(by_angle, tall, value=4 / math.pi).addcmul_(by_area, height, value=-1.0)
    by_size[1].addcmul_(by_angle, width, value=-4 / math.pi).addcmul_(by_area, width, value=-1.0)
    return value, torch.cat((by_centre, by_size))


def _extents(centres: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return overlap (negative where apart) and hull of the pairs per axis, (2, N) each.

    Then how the hull changes with pred's centre and size: the contract's high + low, high - low.
    """
    highs, lows = torch.add(centres, sizes, alpha=0.5), torch.sub(centres, sizes, alpha=0.5)
    (high, high_target), (low, low_target) = highs.unbind(), lows.unbind()
    overlap = torch.minimum(high, high_target).sub_(torch.maximum(low, low_target))
    hull = torch.maximum(high, high_target).sub_(torch.minimum(low, low_target))
    high_side, low_side = (high - high_target).sign_(), (low - low_target).sign_()
    return overlap, hull, high_side + low_side, high_side.sub_(low_side)


def _angle(sizes: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the angle between the diagonals times 2 / pi, and the height of pred plus eps.

    Then the square of that height plus the square of the width. (N,) each.
    """
    tall, tall_target = (sizes[:, 1] + eps).unbind()
    width, width_target = sizes[:, 0].unbind()
    dot = (tall * tall_target).addcmul_(width, width_target)
    cross = (tall * width_target).addcmul_(width, tall_target, value=-1.0)
    angle = cross.div_(dot).atan_().mul_(2 / math.pi)
    return angle, tall, (tall * tall).addcmul_(width, width)
