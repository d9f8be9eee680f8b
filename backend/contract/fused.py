"""The fast paths of training, each beside a plain one."""

from __future__ import annotations

from typing import Any, Protocol

from duet.backend.contract.inference import Tensor


class Fused(Protocol):
    """Fast paths: the same results as several operations of `ops`, in as few launches as possible.

    A form that a flag asks for is proved on its device against the plain one before it is used:
    `backend/proof.py`.
    """

    def complete_iou(self, pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
        """Compute CIoU with its gradient in closed form (gradient).

        The plain form `models/heads/anchor/boxes.py::complete_iou` is the one reference. Every
        other form computes what follows, in the order that is fastest for its framework and
        device. Per axis, with the overlap s of that axis and t of the other (0 where the boxes are
        apart), the hull h, the offset o of the centres, the union U, the squared diagonal D of the
        hull and rho = |o|² / D:

            by_overlap = t * (1 + IoU) / U where the boxes meet, else 0
            by_hull = 2 * h * rho / D
            by centre: (by_hull - by_overlap) / 2 * (high + low) - 2 * o / D
            by size:   (by_hull + by_overlap) / 2 + (by_hull - by_overlap) / 4 * (high - low)

        high and low are the signs of pred's edge minus target's. They are 0 for equal edges: a tie
        counts half for each box. The area and the angle add to the sizes, with alpha constant,
        T = height + eps, angle = 2 / pi * (atan of target's sides - atan of pred's) and
        by_angle = alpha * angle * 4 / pi / (T² + width²):

            by width:  by_angle * T - IoU / U * height
            by height: -by_angle * width - IoU / U * width

        The difference of two arctangents is one arctangent: of the cross over the dot product.

        Args:
            pred: (N, 4) cxcywh, any one unit, float32 or float64, sides not negative.
            target: (N, 4), same format, unit and dtype; a constant: it gets no gradient.
            eps: added to denominators, above 0.

        Returns:
            (N,); (0,) when N is 0. Half precision, which is not a promised dtype, is computed
            and returned in float32.

        Raises:
            ValueError: other or unequal shapes.
        """

    def batch_norm_silu(self, norm: Any, x: Tensor) -> Tensor:
        """Return `ops.silu(norm(x))` up to rounding; if the backend can, keep one map, not two,
        for the backward pass (gradient).

        Running statistics follow as when the layer is called. PyTorch keeps one in training on a
        CPU, in float32 and float64, unless statistics are those of several ranks. No weight may be
        0, nor a hundredth of its bias: the layer then keeps both. OneFlow keeps both always.

        Args:
            norm: a `NN.BatchNorm2d`.
            x: (B, C, H, W).

        Raises:
            ValueError: a single value per channel in training, which has no variance.
        """

    def take_rows_and_column(self, x: Tensor, index: Tensor, column: int) -> tuple[Tensor, Tensor]:
        """Return `ops.take_rows(x, index)` and a column of all rows (gradient).

        PyTorch makes one gradient as large as x where the two operations make two and their sum.

        Args:
            x: (N, R). Half precision is returned in float32, without a cast of all of x, and its
                gradient is summed up in half precision.
            index: (K,) int64; a row may be taken several times.
            column: from 0 to R - 1.

        Returns:
            (K, R) and (N,).

        Raises:
            ValueError: as `ops.take_rows`.
        """
