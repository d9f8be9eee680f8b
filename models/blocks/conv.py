"""Convolutions with BatchNorm and activation, and blocks built only from them.

Sources: Ghost convolutions: Han et al. 2020, arXiv:1911.11907; SiLU: Elfwing et al. 2017,
arXiv:1702.03118; Hardswish: Howard et al. 2019, arXiv:1905.02244; Mish: Misra 2019,
arXiv:1908.08681.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

from duet.backend import fused, nn, ops
from duet.backend.contract import Tensor
from duet.models.blocks.registry import Cost, LayerPlan, LayerRequest, plan_layer, register
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
GHOST_KERNEL_SIZE = 5  # depthwise convolution


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
        if args["padding"] > args["kernel_size"] // 2:
            raise UserError(f"padding is {args['padding']}; accepted: at most half of kernel_size")
        return plan_layer(cls, request, out_channels, *request.args[1:], stride=args["stride"])


@register("DWConv")
class DepthwiseConv(Conv):
    """`Conv` with as many groups as the channels allow."""

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [out_channels, kernel_size, stride]."""
        args = request.counts(channels=None, kernel_size=1, stride=1)
        channels, kernel_size, stride = args.values()
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
        return plan_layer(cls, request, *args.values(), stride=args["stride"])
