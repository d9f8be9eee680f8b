"""The blocks of YOLOv5 v6: convolutions, bottlenecks, CSP, pooling, upsampling, concatenation.

Sources: CSP: Wang et al. 2019, arXiv:1911.11929; SPP: He et al. 2014, arXiv:1406.4729; SiLU:
Elfwing et al. 2017, arXiv:1702.03118; Hardswish: Howard et al. 2019, arXiv:1905.02244; Mish: Misra
2019, arXiv:1908.08681.
"""

import math
from collections.abc import Callable
from functools import cache, partial

from duet.backend import fused, nn, ops
from duet.backend.contract import Tensor
from duet.models.blocks.registry import (
    Cost,
    LayerPlan,
    LayerRequest,
    plan_layer,
    register,
    require_grid,
)
from duet.utils.activation import DEFAULT_ACTIVATION, LEAKY, parse_activation
from duet.utils.errors import UserError, brief

Activation = Callable[[Tensor], Tensor]


@cache  # model specs are compared, so equal slopes must give equal functions
def leaky_relu(slope: float) -> Activation:
    """Return the function that is x where x > 0, else slope · x."""
    return partial(ops.leaky_relu, slope=slope)


relu = leaky_relu(0.0)


def hardswish(x: Tensor) -> Tensor:
    """Return x · min(max(x + 3, 0), 6) / 6."""
    return x * (relu(x + 3.0) - relu(x - 3.0)) / 6.0


def mish(x: Tensor) -> Tensor:
    """Return x · tanh(log(1 + e^x)), using e^x = 1 / s - 1 with s = sigmoid(-x) to stay finite."""
    square = ops.sigmoid(-x) ** 2
    return x * (1.0 - square) / (1.0 + square)


PLAIN: dict[str, Activation] = {
    "SiLU": ops.silu,
    "ReLU": relu,
    "Hardswish": hardswish,
    "Mish": mish,
}


def find_activation(written: object) -> Activation:
    """Return the function for a name such as nn.LeakyReLU(0.1); None gives the default.

    Raises:
        UserError: unknown activation; the message lists the accepted ones.
    """
    found = DEFAULT_ACTIVATION if written is None else parse_activation(written)
    if found is not None and found.slope is not None:
        return leaky_relu(found.slope)
    if found is None or found.kind not in PLAIN:
        accepted = ", ".join(f"nn.{kind}()" for kind in PLAIN)
        raise UserError(
            f"act: {brief(written)}; accepted: {accepted}, nn.{LEAKY}(SLOPE) with SLOPE from 0 to 1"
        )
    return PLAIN[found.kind]


BATCHNORM_EPS = 1e-3
BATCHNORM_MOMENTUM = 0.03
# Elements, 2 MiB. With 16 images at 320 px, 24 of YOLOv5n's 57 maps are larger, 76 % of the memory.
LARGE_MAP = 1 << 19


@register("Conv")
class Conv(nn.Module):
    """Convolution without bias, BatchNorm, activation; padded to keep the size at stride 1.

    Attributes:
        arguments, groups: arguments of the convolution except bias.
        activation: SiLU until `detector.py` sets the model's; None for none.
        eps, momentum: BatchNorm parameters.
    """

    eps, momentum = BATCHNORM_EPS, BATCHNORM_MOMENTUM

    activation: Activation | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        activates: bool = True,
    ) -> None:
        super().__init__()
        padding = kernel_size // 2 if padding is None else padding
        self.arguments = (in_channels, out_channels, kernel_size, stride, padding)
        self.groups = groups
        self.conv = nn.Conv2d(*self.arguments, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(out_channels, self.eps, self.momentum)
        self.activation = ops.silu if activates else None

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H / stride, W / stride)."""
        y = self.conv(x)
        # For smaller maps the memory saved is not worth the longer calls.
        large = self.training and math.prod(y.shape) >= LARGE_MAP
        if large and self.activation is ops.silu:
            return fused.batch_norm_silu(self.bn, y)
        y = self.bn(y)
        return y if self.activation is None else self.activation(y)

    @staticmethod
    def cost(
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
    ) -> Cost:
        """Return the cost of a layer with these constructor arguments, as every block's `cost`."""
        return Cost(out_channels * (in_channels // groups) * kernel_size**2, out_channels)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_size, stride, padding, groups]."""
        args = request.counts(channels=None, kernel_size=1, stride=1, padding=0, groups=1)
        in_channels, out_channels = request.in_channels[0], args["channels"]
        if in_channels % args["groups"] or out_channels % args["groups"]:
            raise UserError(
                f"{args['groups']} groups do not divide {in_channels} and {out_channels} channels"
            )
        padding = args["padding"] if len(request.args) > 3 else None
        require_grid(args["kernel_size"], args["stride"], padding)
        return plan_layer(cls, request, out_channels, *request.args[1:], stride=args["stride"])


class Bottleneck(nn.Module):
    """1x1 then 3x3 convolution, with a shortcut if requested and the channels match.

    first_kernel: kernel size of the first convolution.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden: int,
        shortcut: bool = True,
        first_kernel: int = 1,
    ) -> None:
        super().__init__()
        self.cv1 = Conv(in_channels, hidden, first_kernel)
        self.cv2 = Conv(hidden, out_channels, 3)
        self.shortcut = shortcut and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H, W)."""
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y

    @staticmethod
    def cost(in_channels: int, out_channels: int, hidden: int, first_kernel: int = 1) -> Cost:
        first = Conv.cost(in_channels, hidden, first_kernel)
        return first + Conv.cost(hidden, out_channels, 3)


@register("Bottleneck", repeats=True)
class Bottlenecks:
    """One bottleneck or several in sequence, each with half the channels inside.

    Source: YOLOv3, Redmon and Farhadi 2018, arXiv:1804.02767.
    """

    @staticmethod
    def plan(request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, shortcut]."""
        out_channels, shortcut = channels_and_shortcut(request)
        following = (out_channels, out_channels, out_channels // 2)
        rows = [(request.in_channels[0], *following[1:])] + [following] * (request.repeats - 1)
        cost = Bottleneck.cost(*rows[0]) + Bottleneck.cost(*following) * (len(rows) - 1)

        def make() -> nn.Module:
            made = [Bottleneck(*row, shortcut) for row in rows]
            return made[0] if len(made) == 1 else nn.Sequential(*made)

        stride = request.in_strides[0]
        return LayerPlan(make, out_channels, stride, ((stride, cost),))


@register("C3", repeats=True)
class C3(nn.Module):
    """Cross-stage partial block: two 1x1 branches of half the channels, bottlenecks on one."""

    def __init__(
        self, in_channels: int, out_channels: int, repeats: int = 1, shortcut: bool = True
    ) -> None:
        super().__init__()
        hidden = out_channels // 2
        self.cv1 = Conv(in_channels, hidden, 1)
        self.cv2 = Conv(in_channels, hidden, 1)
        self.cv3 = Conv(2 * hidden, out_channels, 1)
        self.m = self.inner(hidden, repeats, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to (B, out, H, W)."""
        return self.cv3(ops.cat([self.m(self.cv1(x)), self.cv2(x)], dim=1))

    @staticmethod
    def inner(channels: int, repeats: int, shortcut: bool) -> nn.Module:
        """Return the bottlenecks of one branch, (B, C, H, W) to (B, C, H, W)."""
        rows = (Bottleneck(channels, channels, channels, shortcut) for _ in range(repeats))
        return nn.Sequential(*rows)

    @staticmethod
    def inner_cost(channels: int, repeats: int) -> Cost:
        return Bottleneck.cost(channels, channels, channels) * repeats

    @classmethod
    def cost(
        cls, in_channels: int, out_channels: int, repeats: int = 1, shortcut: bool = True
    ) -> Cost:
        hidden = out_channels // 2
        around = Conv.cost(in_channels, hidden) * 2 + Conv.cost(2 * hidden, out_channels)
        return around + cls.inner_cost(hidden, repeats)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, shortcut]."""
        out_channels, shortcut = channels_and_shortcut(request)
        return plan_layer(cls, request, out_channels, request.repeats, shortcut)


def channels_and_shortcut(request: LayerRequest, usual: bool = True) -> tuple[int, bool]:
    """Return YAML args [out_channels, shortcut], with the width multiple applied.

    usual: default of shortcut.
    """
    *channels, shortcut = (*request.args, usual) if len(request.args) < 2 else request.args
    if not isinstance(shortcut, bool):
        raise UserError(f"shortcut is {brief(shortcut)}; accepted: True or False")
    return request.counts(channels, channels=None)["channels"], shortcut


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
