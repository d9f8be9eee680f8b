"""Further blocks of public models: depthwise, Focus, Ghost, C2f, SPP, pooling and padding.

Sources: Ghost: Han et al. 2020, arXiv:1911.11907; SPP: He et al. 2014, arXiv:1406.4729; C2f: the
published architecture table of YOLOv8.
"""

import math
from collections.abc import Sequence

from duet.backend import nn, ops
from duet.backend.contract import Tensor
from duet.models.blocks.registry import (
    MAX_ARGUMENT,
    Cost,
    LayerPlan,
    LayerRequest,
    plan_layer,
    register,
    require_grid,
)
from duet.models.blocks.yolov5 import C3, Bottleneck, Conv, channels_and_shortcut
from duet.utils.errors import UserError, brief

GHOST_KERNEL_SIZE = 5  # depthwise convolution


@register("DWConv")
class DepthwiseConv(Conv):
    """`Conv` with as many groups as the channels allow."""

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_size, stride]."""
        args = request.counts(channels=None, kernel_size=1, stride=1)
        channels, kernel_size, stride = args.values()
        require_grid(kernel_size, stride)
        groups = math.gcd(request.in_channels[0], channels)
        return plan_layer(cls, request, channels, kernel_size, stride, None, groups, stride=stride)


@register("Focus")
class Focus(nn.Module):
    """Stack 2x2 pixels into channels, then convolve: the stem of YOLOv5 up to v5."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 1) -> None:
        super().__init__()
        self.conv = Conv(4 * in_channels, out_channels, kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W), even sides, to (B, out, H / 2, W / 2)."""
        batch, channels, height, width = x.shape
        squares = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
        # Channel order of the public weights: the row within the square varies fastest.
        folded = squares.permute(0, 5, 3, 1, 2, 4)
        return self.conv(folded.reshape(batch, 4 * channels, height // 2, width // 2))

    @staticmethod
    def cost(in_channels: int, out_channels: int, kernel_size: int = 1) -> Cost:
        return Conv.cost(4 * in_channels, out_channels, kernel_size)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_size]."""
        args = request.counts(channels=None, kernel_size=1)
        require_grid(args["kernel_size"], 1)
        return plan_layer(cls, request, *args.values(), stride=2)


@register("GhostConv")
class GhostConv(nn.Module):
    """Half the channels from a convolution, the other half from a depthwise one on those."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: int = 1,
        activates: bool = True,
    ) -> None:
        super().__init__()
        half = out_channels // 2
        self.cv1 = Conv(in_channels, half, kernel_size, stride, activates=activates)
        self.cv2 = Conv(half, half, GHOST_KERNEL_SIZE, groups=half, activates=activates)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H / stride, W / stride)."""
        y = self.cv1(x)
        return ops.cat([y, self.cv2(y)], dim=1)

    @staticmethod
    def cost(in_channels: int, out_channels: int, kernel_size: int = 1, stride: int = 1) -> Cost:
        half = out_channels // 2
        first = Conv.cost(in_channels, half, kernel_size)
        return first + Conv.cost(half, half, GHOST_KERNEL_SIZE, groups=half)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_size, stride]."""
        args = request.counts(channels=None, kernel_size=1, stride=1)
        require_grid(args["kernel_size"], args["stride"])
        return plan_layer(cls, request, *args.values(), stride=args["stride"])


class GhostBottleneck(nn.Module):
    """Two Ghost convolutions, the second without activation, and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = channels // 2
        # Index 1 is reserved for a strided convolution, which no public model uses.
        self.conv = nn.Sequential(
            GhostConv(channels, hidden),
            nn.Sequential(),
            GhostConv(hidden, channels, activates=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, H, W)."""
        return self.conv(x) + x

    @staticmethod
    def cost(channels: int) -> Cost:
        return GhostConv.cost(channels, channels // 2) + GhostConv.cost(channels // 2, channels)


@register("C3Ghost", repeats=True)
class C3Ghost(C3):
    """`C3` with Ghost bottlenecks, which always have a shortcut."""

    @staticmethod
    def inner(channels: int, repeats: int, shortcut: bool) -> nn.Module:
        return nn.Sequential(*(GhostBottleneck(channels) for _ in range(repeats)))

    @staticmethod
    def inner_cost(channels: int, repeats: int) -> Cost:
        return GhostBottleneck.cost(channels) * repeats


@register("C2f", repeats=True)
class C2f(nn.Module):
    """Sequence of bottlenecks with two 3x3 convolutions; all their outputs are concatenated."""

    def __init__(
        self, in_channels: int, out_channels: int, repeats: int = 1, shortcut: bool = False
    ) -> None:
        super().__init__()
        self.hidden = hidden = out_channels // 2
        self.cv1 = Conv(in_channels, 2 * hidden, 1)
        self.cv2 = Conv((2 + repeats) * hidden, out_channels, 1)
        rows = (Bottleneck(hidden, hidden, hidden, shortcut, 3) for _ in range(repeats))
        self.m = nn.ModuleList(rows)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H, W)."""
        outputs = [self.cv1(x)]
        last = outputs[0][:, self.hidden :]
        for inner in self.m:
            last = inner(last)
            outputs.append(last)
        return self.cv2(ops.cat(outputs, dim=1))

    @staticmethod
    def cost(in_channels: int, out_channels: int, repeats: int = 1, shortcut: bool = False) -> Cost:
        hidden = out_channels // 2
        around = Conv.cost(in_channels, 2 * hidden) + Conv.cost(
            (2 + repeats) * hidden, out_channels
        )
        return around + Bottleneck.cost(hidden, hidden, hidden, 3) * repeats

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, shortcut]; shortcut defaults to False."""
        out_channels, shortcut = channels_and_shortcut(request, usual=False)
        return plan_layer(cls, request, out_channels, request.repeats, shortcut)


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
    @staticmethod
    def plan(request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [kernel_size, stride, padding]; stride defaults to kernel_size."""
        first = request.args[0] if request.args else None
        stride = first if type(first) is int else 1
        args = request.counts(kernel_size=None, stride=stride, padding=0)
        window, stride, padding = args["kernel_size"], args["stride"], args["padding"]
        require_grid(window, stride, padding, request.in_margin)
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
