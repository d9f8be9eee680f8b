"""Pooling, spatial pyramid pooling, padding, upsampling and concatenation.

Source of SPP: He et al. 2014, arXiv:1406.4729.
"""

from __future__ import annotations

from collections.abc import Sequence

from duet.backend import nn, ops
from duet.backend.contract import Tensor
from duet.models.blocks.conv import Conv
from duet.models.blocks.registry import (
    MAX_ARGUMENT,
    Cost,
    LayerPlan,
    LayerRequest,
    plan_layer,
    register,
)
from duet.utils.errors import UserError, brief


@register("SPPF")
class SPPF(nn.Module):
    """Spatial pyramid pooling: three poolings in sequence cover windows of 5, 9 and 13 px."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 5) -> None:
        super().__init__()
        hidden = in_channels // 2
        self.cv1 = Conv(in_channels, hidden, 1)
        self.cv2 = Conv(4 * hidden, out_channels, 1)
        self.pool = nn.MaxPool2d(kernel_size, stride=1, padding=kernel_size // 2)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H, W)."""
        levels = [self.cv1(x)]
        for _ in range(3):
            levels.append(self.pool(levels[-1]))
        return self.cv2(ops.cat(levels, dim=1))

    @staticmethod
    def cost(in_channels: int, out_channels: int, kernel_size: int = 5) -> Cost:
        hidden = in_channels // 2
        return Conv.cost(in_channels, hidden) + Conv.cost(4 * hidden, out_channels)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_size]."""
        args = request.counts(channels=None, kernel_size=5)
        if args["kernel_size"] % 2 == 0:
            raise UserError(f"kernel_size is {args['kernel_size']}; accepted: odd numbers")
        return plan_layer(cls, request, *args.values())


@register("SPP")
class SPP(nn.Module):
    """Spatial pyramid pooling with one window per branch, as in YOLOv5 up to v5."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_sizes: Sequence[int] = (5, 9, 13)
    ) -> None:
        super().__init__()
        hidden = in_channels // 2
        self.cv1 = Conv(in_channels, hidden, 1)
        self.cv2 = Conv((len(kernel_sizes) + 1) * hidden, out_channels, 1)
        self.m = nn.ModuleList(
            [nn.MaxPool2d(size, stride=1, padding=size // 2) for size in kernel_sizes]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H, W)."""
        x = self.cv1(x)
        return self.cv2(ops.cat([x, *(pool(x) for pool in self.m)], dim=1))

    @staticmethod
    def cost(in_channels: int, out_channels: int, kernel_sizes: Sequence[int] = (5, 9, 13)) -> Cost:
        hidden = in_channels // 2
        joined = (len(kernel_sizes) + 1) * hidden
        return Conv.cost(in_channels, hidden) + Conv.cost(joined, out_channels)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_sizes]."""
        *channels, sizes = request.args if len(request.args) > 1 else (*request.args, (5, 9, 13))
        if not isinstance(sizes, (list, tuple)) or not 1 <= len(sizes) <= MAX_ARGUMENT:
            raise UserError(f"kernel_sizes is {brief(sizes)}; accepted: a list of odd numbers")
        if not all(type(size) is int and size in range(1, MAX_ARGUMENT, 2) for size in sizes):
            raise UserError(
                f"kernel_sizes is {brief(sizes)}; accepted: odd numbers up to {MAX_ARGUMENT}"
            )
        return plan_layer(cls, request, request.counts(channels, channels=None)["channels"], sizes)


@register("nn.MaxPool2d", trims=True)
class MaxPool:
    """Max pooling."""

    @staticmethod
    def plan(request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [kernel_size, stride, padding]; stride defaults to kernel_size."""
        first = request.args[0] if request.args else None
        stride = first if type(first) is int else 1
        args = request.counts(kernel_size=None, stride=stride, padding=0)
        window, stride, padding = args["kernel_size"], args["stride"], args["padding"]
        if padding > window // 2:
            raise UserError(f"padding is {padding}; accepted: at most half of kernel_size")
        if (request.in_margin + 2 * padding - window) // stride != -1:
            raise UserError(
                f"kernel_size {window}, stride {stride} and padding {padding} do not give a map of "
                f"image size / stride; use [{window}, {window}], or nn.ZeroPad2d [[0, 1, 0, 1]] "
                "before [2, 1]"
            )
        out_stride = request.in_strides[0] * stride
        return LayerPlan(
            lambda: nn.MaxPool2d(window, stride, padding), request.in_channels[0], out_stride
        )


@register("nn.ZeroPad2d")
class ZeroPad(nn.Module):
    """Pad one row of zeros at the bottom and one column at the right."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, H + 1, W + 1)."""
        _, _, height, width = x.shape
        return ops.pad_to(x, height + 1, width + 1, 0.0)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [[0, 1, 0, 1]] (left, right, top, bottom), the only one supported.

        Only nn.MaxPool2d accepts the output.
        """
        if request.args not in (([0, 1, 0, 1],), ((0, 1, 0, 1),)):
            raise UserError(f"args {brief(list(request.args))}; accepted: [[0, 1, 0, 1]]")
        return LayerPlan(cls, request.in_channels[0], request.in_strides[0], margin=1)


@register("nn.Upsample")
class Upsample(nn.Module):
    """Upsample by 2, nearest neighbour."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, 2H, 2W)."""
        return ops.upsample_nearest_2x(x)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [None, 2, nearest], the only ones supported."""
        if request.args != (None, 2, "nearest"):
            raise UserError(f"args {brief(list(request.args))}; accepted: [None, 2, nearest]")
        if request.in_strides[0] % 2:
            raise UserError(f"its source has stride {request.in_strides[0]}; it must be even")
        return LayerPlan(cls, request.in_channels[0], request.in_strides[0] // 2)


@register("Concat", joins=True)
class Concat(nn.Module):
    """Concatenate feature maps of the same size along the channels."""

    def forward(self, *maps: Tensor) -> Tensor:
        """Map (B, C_i, H, W) each to (B, sum of C_i, H, W)."""
        return ops.cat(maps, dim=1)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [1], the channel dimension."""
        if request.args != (1,):
            args = brief(list(request.args))
            raise UserError(f"args {args}; accepted: [1], the channel dimension")
        if len(set(request.in_strides)) > 1:
            strides = brief(list(request.in_strides))
            raise UserError(f"cannot join maps of strides {strides}; they must be equal")
        return LayerPlan(cls, sum(request.in_channels), request.in_strides[0])
