"""The building blocks of YOLOv5; `graph.py` places them, `detector.py` runs them.

Attribute names (cv1, cv2, m, bn) are those of the public weights, since they name parameters.
Source: the public YOLOv5 v6 architecture; CSP: Wang et al. 2019, arXiv:1911.11929;
SPP: He et al. 2014, arXiv:1406.4729.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from backend import nn, ops
from backend.contract import Tensor
from models.registry import MAX_ARGUMENT, LayerPlan, LayerRequest, register
from utils.errors import UserError, brief

BATCHNORM_EPS = 1e-3
BATCHNORM_MOMENTUM = 0.03
BATCHNORM_NUMBERS = 4  # a channel: weight, bias, mean and variance


@register("Conv")
class Conv(nn.Module):
    """Convolution without bias, BatchNorm, SiLU; padded so that stride 1 keeps the size.

    Attributes:
        arguments: of the convolution, without its bias.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
    ) -> None:
        super().__init__()
        padding = kernel_size // 2 if padding is None else padding
        self.arguments = (in_channels, out_channels, kernel_size, stride, padding, groups)
        self.conv = nn.Conv2d(*self.arguments, bias=False)
        self.bn = nn.BatchNorm2d(out_channels, BATCHNORM_EPS, BATCHNORM_MOMENTUM)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H / stride, W / stride)."""
        return ops.silu(self.bn(self.conv(x)))

    @staticmethod
    def numbers(
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
    ) -> int:
        """Return how many numbers a layer of these arguments holds, as `numbers` of all blocks."""
        return out_channels * (in_channels // groups * kernel_size**2 + BATCHNORM_NUMBERS)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_size, stride, padding, groups]."""
        args = request.counts(channels=None, kernel_size=1, stride=1, padding=0, groups=1)
        in_channels, out_channels = request.in_channels[0], request.scale_width(args["channels"])
        if in_channels % args["groups"] or out_channels % args["groups"]:
            raise UserError(
                f"{args['groups']} groups do not divide {in_channels} and {out_channels} channels"
            )
        if args["padding"] > args["kernel_size"] // 2:
            raise UserError(
                f"padding is {args['padding']}; at most half of kernel_size is accepted"
            )
        stride = request.in_strides[0] * args["stride"]
        return plan_layer(cls, out_channels, stride, in_channels, out_channels, *request.args[1:])


class Bottleneck(nn.Module):
    """1x1 then 3x3 convolution, with a shortcut when asked for."""

    def __init__(self, channels: int, shortcut: bool = True) -> None:
        super().__init__()
        self.cv1 = Conv(channels, channels, 1)
        self.cv2 = Conv(channels, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, H, W)."""
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y

    @staticmethod
    def numbers(channels: int) -> int:
        return Conv.numbers(channels, channels, 1) + Conv.numbers(channels, channels, 3)


@register("C3", repeats=True)
class C3(nn.Module):
    """Cross-stage partial block: one half through bottlenecks, one past them, then joined."""

    def __init__(
        self, in_channels: int, out_channels: int, repeats: int = 1, shortcut: bool = True
    ) -> None:
        super().__init__()
        hidden = out_channels // 2
        self.cv1 = Conv(in_channels, hidden, 1)
        self.cv2 = Conv(in_channels, hidden, 1)
        self.cv3 = Conv(2 * hidden, out_channels, 1)
        self.m = nn.Sequential(*(Bottleneck(hidden, shortcut) for _ in range(repeats)))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H, W)."""
        return self.cv3(ops.cat([self.m(self.cv1(x)), self.cv2(x)], dim=1))

    @staticmethod
    def numbers(
        in_channels: int, out_channels: int, repeats: int = 1, shortcut: bool = True
    ) -> int:
        hidden = out_channels // 2
        around = 2 * Conv.numbers(in_channels, hidden) + Conv.numbers(2 * hidden, out_channels)
        return around + repeats * Bottleneck.numbers(hidden)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, shortcut]."""
        *channels, shortcut = (*request.args, True) if len(request.args) < 2 else request.args
        if not isinstance(shortcut, bool):
            raise UserError(f"shortcut is {brief(shortcut)}; True or False is needed")
        args = dataclasses.replace(request, args=tuple(channels)).counts(channels=None)
        out_channels = request.scale_width(args["channels"])
        return plan_layer(
            cls,
            out_channels,
            request.in_strides[0],
            request.in_channels[0],
            out_channels,
            request.repeats,
            shortcut,
        )


@register("SPPF")
class SPPF(nn.Module):
    """Spatial pyramid pooling: three poolings in a row see what 5, 9 and 13 px windows see."""

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
    def numbers(in_channels: int, out_channels: int, kernel_size: int = 5) -> int:
        hidden = in_channels // 2
        return Conv.numbers(in_channels, hidden) + Conv.numbers(4 * hidden, out_channels)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_size]."""
        args = request.counts(channels=None, kernel_size=5)
        if args["kernel_size"] % 2 == 0:
            raise UserError(f"kernel_size is {args['kernel_size']}; an odd number is needed")
        out_channels, in_channels = request.scale_width(args["channels"]), request.in_channels[0]
        stride = request.in_strides[0]
        return plan_layer(cls, out_channels, stride, in_channels, out_channels, args["kernel_size"])


@register("SPP")
class SPP(nn.Module):
    """Spatial pyramid pooling with a window a branch, as in YOLOv5 up to v5."""

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
    def numbers(
        in_channels: int, out_channels: int, kernel_sizes: Sequence[int] = (5, 9, 13)
    ) -> int:
        hidden = in_channels // 2
        joined = (len(kernel_sizes) + 1) * hidden
        return Conv.numbers(in_channels, hidden) + Conv.numbers(joined, out_channels)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_sizes]."""
        *channels, sizes = request.args if len(request.args) > 1 else (*request.args, (5, 9, 13))
        if not isinstance(sizes, (list, tuple)) or not 1 <= len(sizes) <= MAX_ARGUMENT:
            raise UserError(f"kernel_sizes is {brief(sizes)}; a list of odd numbers is needed")
        if not all(type(size) is int and size in range(1, MAX_ARGUMENT, 2) for size in sizes):
            raise UserError(
                f"kernel_sizes is {brief(sizes)}; odd numbers up to {MAX_ARGUMENT} are needed"
            )
        args = dataclasses.replace(request, args=tuple(channels)).counts(channels=None)
        out_channels, in_channels = request.scale_width(args["channels"]), request.in_channels[0]
        stride = request.in_strides[0]
        return plan_layer(cls, out_channels, stride, in_channels, out_channels, sizes)


@register("Focus")
class Focus(nn.Module):
    """Squares of 2x2 pixels laid into channels, then a convolution: the stem up to v5."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 1) -> None:
        super().__init__()
        self.conv = Conv(4 * in_channels, out_channels, kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W), even sides, to (B, out, H / 2, W / 2)."""
        batch, channels, height, width = x.shape
        squares = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
        # The order of the public weights: the row within the square changes first.
        folded = squares.permute(0, 5, 3, 1, 2, 4)
        return self.conv(folded.reshape(batch, 4 * channels, height // 2, width // 2))

    @staticmethod
    def numbers(in_channels: int, out_channels: int, kernel_size: int = 1) -> int:
        return Conv.numbers(4 * in_channels, out_channels, kernel_size)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_size]."""
        args = request.counts(channels=None, kernel_size=1)
        out_channels, in_channels = request.scale_width(args["channels"]), request.in_channels[0]
        stride = request.in_strides[0] * 2
        return plan_layer(cls, out_channels, stride, in_channels, out_channels, args["kernel_size"])


@register("nn.Upsample")
class Upsample(nn.Module):
    """Twice the size, nearest neighbour."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, 2H, 2W)."""
        return ops.upsample_nearest_2x(x)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [None, 2, nearest], the one upsampling there is."""
        if request.args != (None, 2, "nearest"):
            raise UserError(f"args {brief(list(request.args))}; accepted: [None, 2, nearest]")
        if request.in_strides[0] % 2:
            raise UserError(f"its source has stride {request.in_strides[0]}; an even one is needed")
        return LayerPlan(cls, 0, request.in_channels[0], request.in_strides[0] // 2)


@register("Concat", joins=True)
class Concat(nn.Module):
    """Feature maps of one size joined along their channels."""

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
            raise UserError(f"joins maps of strides {strides}; they must be equal")
        return LayerPlan(cls, 0, sum(request.in_channels), request.in_strides[0])


def plan_layer(kind: Any, out_channels: int, stride: int, *arguments: Any) -> LayerPlan:
    """Return the plan of a block whose constructor and `numbers` take the same arguments."""
    return LayerPlan(lambda: kind(*arguments), kind.numbers(*arguments), out_channels, stride)
