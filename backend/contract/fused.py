"""Fast paths for training, each with a plain reference path."""

from typing import Protocol

from duet.backend.contract.inference import NN, Tensor


class Fused(Protocol):
    """Fast paths: the results of several `ops` calls, in as few kernel launches as possible."""

    def complete_iou(self, pred: Tensor, target: Tensor, eps: float = 1e-7) -> Tensor:
        """Compute CIoU with a closed-form gradient (gradient).

        The reference is the plain `models/heads/anchor/boxes.py::complete_iou`. Every other
        implementation evaluates the formulas below, in the order that is fastest for its framework
        and device. Per axis, with overlap s on that axis and t on the other (0 where the boxes are
        apart), hull h, offset o of the centres, union U, squared diagonal D of the
        hull and rho = |o|² / D:

            by_overlap = t * (1 + IoU) / U where the boxes meet, else 0
            by_hull = 2 * h * rho / D
            by centre: (by_hull - by_overlap) / 2 * (high + low) - 2 * o / D
            by size:   (by_hull + by_overlap) / 2 + (by_hull - by_overlap) / 4 * (high - low)

        high and low are the signs of pred's edge minus target's, 0 for equal edges: in a tie each
        box gets half. Area and angle add to the gradient of the sizes, with alpha constant,
        T = height + eps, angle = 2 / pi * (atan of target's sides - atan of pred's) and
        by_angle = alpha * angle * 4 / pi / (T² + width²):

            by width:  by_angle * T - IoU / U * height
            by height: -by_angle * width - IoU / U * width

        The difference of two arctangents is computed as one: atan of cross over dot product.

        Args:
            pred: (N, 4) cxcywh, any unit, float32 or float64, non-negative sides.
            target: (N, 4), same format, unit and dtype; constant, receives no gradient.
            eps: added to denominators; positive.

        Returns:
            (N,); (0,) when N is 0. Half-precision input, though not a promised dtype, is computed
            and returned in float32.

        Raises:
            ValueError: the shapes are different or not (N, 4).
        """

    def batch_norm_silu(self, norm: NN.Module, x: Tensor) -> Tensor:
        """Return `ops.silu(norm(x))` up to rounding, saving one map instead of two for the backward
        pass if the backend can (gradient).

        Running statistics are updated as in a normal call. PyTorch saves one map when training on
        a CPU in float32 or float64 without synchronized statistics, provided that no weight is 0
        or below a hundredth of its bias. OneFlow always saves both.

        Args:
            norm: `NN.BatchNorm2d` layer.
            x: (B, C, H, W).

        Raises:
            ValueError: in training, a single value per channel, which has no variance.
        """

    def finish_problem(self, device: str) -> str | None:
        """Return why `finish_images` is not for a device, on one line; None if it is."""

    def finish_images(
        self,
        images: Tensor,
        tables: Tensor,
        changes: Tensor,
        dtype: str,
        channels_last: bool = False,
    ) -> Tensor:
        """Change hue, saturation and value, flip, and `ops.normalize_images`.

        A GPU runs it compiled, a CPU operation by operation.

        A byte before the division is at most 1 off that of OpenCV, which converts to HSV, looks up
        and converts back in 8 bits.

        Args:
            images: (B, 3, H, W) uint8, RGB.
            tables: (B, 3, 256) uint8, what becomes of each hue (below 180), saturation and value.
            changes: (B, 3) bool: whether an image is flipped up and down, whether left and right,
                and whether its colours change at all.
            dtype, channels_last: as in `ops.normalize_images`.

        Raises:
            ValueError: as in `ops.normalize_images`, other shapes, or a backend without it; see
                `CAPABILITIES`.
        """
