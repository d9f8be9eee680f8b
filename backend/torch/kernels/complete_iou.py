"""Complete IoU by two Triton kernels: value and gradient of all pairs, then the backward product.

The kernels also run in Triton's interpreter: so they are tested without a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS_PER_PROGRAM = 128


def complete_iou(pred: Tensor, target: Tensor, eps: float) -> Tensor:
    """Compute `contract.Fused.complete_iou`; the kernels read and write half precision too."""
    return _CompleteIou.apply(pred, target, eps)


class _CompleteIou(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pred: Tensor, target: Tensor, eps: float) -> Tensor:
        double = pred.dtype == torch.float64
        value = pred.new_empty(len(pred), dtype=torch.float64 if double else torch.float32)
        gradient = value.new_empty(pred.shape)
        ctx.save_for_backward(gradient)
        ctx.dtype = pred.dtype
        if len(pred) > 0:
            with torch.cuda.device_of(pred):
                _value_and_gradient[_grid(value)](
                    pred.contiguous(),
                    target.contiguous(),
                    value,
                    gradient,
                    len(pred),
                    EPS=eps,
                    DTYPE=tl.float64 if double else tl.float32,
                    ROWS=ROWS_PER_PROGRAM,
                )
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        scaled = torch.empty_like(gradient, dtype=ctx.dtype)
        if len(gradient) > 0:
            with torch.cuda.device_of(gradient):
                _scale_rows[_grid(outer)](
                    gradient, outer, outer.stride(0), scaled, len(gradient), ROWS=ROWS_PER_PROGRAM
                )
        return scaled, None, None


def _grid(rows: Tensor) -> tuple[int]:
    return (triton.cdiv(len(rows), ROWS_PER_PROGRAM),)


@triton.jit
def _value_and_gradient(
    pred,
    target,
    value,
    gradient,
    num_rows,
    EPS: tl.constexpr,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write CIoU and its gradient by pred; `contract.Fused.complete_iou` has the formulas.

    pred, target and gradient are (N, 4), value is (N,), all contiguous.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < num_rows
    x, y, width, height = _load_boxes(pred, row, inside, DTYPE)
    x_target, y_target, width_target, height_target = _load_boxes(target, row, inside, DTYPE)
    overlap_x, hull_x, high_side_x, low_side_x = _extents(x, width, x_target, width_target)
    overlap_y, hull_y, high_side_y, low_side_y = _extents(y, height, y_target, height_target)

    shared_x, shared_y = tl.maximum(overlap_x, 0.0), tl.maximum(overlap_y, 0.0)
    intersection = shared_x * shared_y
    union = width * height + width_target * height_target - intersection + EPS
    iou = intersection / union
    diagonal_squared = hull_x * hull_x + hull_y * hull_y + EPS
    offset_x, offset_y = x - x_target, y - y_target
    distance = (offset_x * offset_x + offset_y * offset_y) / diagonal_squared
    tall, tall_target = height + EPS, height_target + EPS
    cross, dot = (
        width_target * tall - width * tall_target,
        tall * tall_target + width * width_target,
    )
    angle = _arctangent(cross, dot) * 0.6366197723675814  # 2 / pi
    aspect = angle * angle
    trade_off = aspect / (aspect - tl.minimum(iou, 1.0) + (1.0 + EPS))
    tl.store(value + row, iou - distance - aspect * trade_off, mask=inside)

    # By the area of the overlap, 0 where the boxes are apart; by a side of the hull, per length.
    meets = (overlap_x >= 0.0) & (overlap_y >= 0.0)
    by_intersection = tl.where(meets, (1.0 + iou) / union, 0.0)
    by_hull = 2.0 * distance / diagonal_squared
    by_x, grow_x = _by_edges(by_intersection * shared_y, by_hull * hull_x, high_side_x, low_side_x)
    by_y, grow_y = _by_edges(by_intersection * shared_x, by_hull * hull_y, high_side_y, low_side_y)
    # The area of pred in the union, and the angle; the trade-off counts as a constant.
    by_area = iou / union
    by_angle = trade_off * angle * 1.2732395447351628 / (tall * tall + width * width)  # 4 / pi
    first = gradient + row * 4
    tl.store(first, by_x - 2.0 * offset_x / diagonal_squared, mask=inside)
    tl.store(first + 1, by_y - 2.0 * offset_y / diagonal_squared, mask=inside)
    tl.store(first + 2, grow_x + by_angle * tall - by_area * height, mask=inside)
    tl.store(first + 3, grow_y - (by_angle + by_area) * width, mask=inside)


@triton.jit
def _scale_rows(gradient, outer, outer_stride, scaled, num_rows, ROWS: tl.constexpr):
    """Write scaled = gradient * outer[:, None], of contiguous (N, 4) and strided (N,)."""
    element = tl.program_id(0) * (4 * ROWS) + tl.arange(0, 4 * ROWS)
    inside = element < num_rows * 4
    factor = tl.load(outer + element // 4 * outer_stride, mask=inside, other=0.0)
    product = tl.load(gradient + element, mask=inside, other=0.0) * factor
    tl.store(scaled + element, product, mask=inside)


@triton.jit
def _load_boxes(boxes, row, inside, DTYPE: tl.constexpr):
    first = boxes + row * 4
    x = tl.load(first, mask=inside, other=0.0).to(DTYPE)
    y = tl.load(first + 1, mask=inside, other=0.0).to(DTYPE)
    width = tl.load(first + 2, mask=inside, other=0.0).to(DTYPE)
    height = tl.load(first + 3, mask=inside, other=0.0).to(DTYPE)
    return x, y, width, height


@triton.jit
def _extents(centre, size, centre_target, size_target):
    """Return overlap (negative where apart) and hull of two intervals, and the edges' sides."""
    high, low = centre + 0.5 * size, centre - 0.5 * size
    high_target, low_target = centre_target + 0.5 * size_target, centre_target - 0.5 * size_target
    overlap = tl.minimum(high, high_target) - tl.maximum(low, low_target)
    hull = tl.maximum(high, high_target) - tl.minimum(low, low_target)
    return overlap, hull, _side(high, high_target), _side(low, low_target)


@triton.jit
def _side(edge, edge_target):
    """Return 1, 0 or -1: high or low of the contract."""
    return (edge > edge_target).to(edge.dtype) - (edge < edge_target).to(edge.dtype)


@triton.jit
def _by_edges(by_overlap, by_hull, high_side, low_side):
    """Return the gradient by centre and size from that by overlap and hull, of one axis."""
    both_grow, hull_grows = 0.5 * (by_hull + by_overlap), 0.5 * (by_hull - by_overlap)
    by_centre = hull_grows * (high_side + low_side)
    return by_centre, both_grow + 0.5 * hull_grows * (high_side - low_side)


@triton.jit
def _arctangent(y, x):
    """Return atan(y / x) for x > 0, to about the last digit of float64 and float32.

    Triton's interpreter has no functions of CUDA's library. Halving the angle twice leaves at most
    pi / 16, where 11 terms of the series are enough.
    """
    size = tl.abs(y)
    tangent = tl.minimum(size, x) / tl.maximum(size, x)
    tangent = tangent / (1.0 + tl.sqrt(1.0 + tangent * tangent))
    tangent = tangent / (1.0 + tl.sqrt(1.0 + tangent * tangent))
    squared = tangent * tangent
    series = 0.0 * squared
    for term in tl.static_range(11):
        series = 1.0 / (21 - 2 * term) - squared * series
    angle = 4.0 * tangent * series
    angle = tl.where(size > x, 1.5707963267948966 - angle, angle)
    return tl.where(y < 0.0, -angle, angle)
