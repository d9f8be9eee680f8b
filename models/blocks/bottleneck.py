"""Bottlenecks, and the cross-stage partial blocks built from them.

Sources: CSP: Wang et al. 2019, arXiv:1911.11929; Ghost: Han et al. 2020, arXiv:1911.11907; C2f: the
published architecture table of YOLOv8.
"""

from __future__ import annotations

from duet.backend import nn, ops
from duet.backend.contract import Tensor
from duet.models.blocks.conv import Conv, GhostConv
from duet.models.blocks.registry import Cost, LayerPlan, LayerRequest, plan_layer, register
from duet.utils.errors import UserError, brief


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


@register("C3", repeats=True)
class C3(nn.Module):
    """Cross-stage partial block: bottlenecks on one half, a bypass for the other, then concat."""

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
        """Return the module for one half, (B, C, H, W) to (B, C, H, W)."""
        rows = (Bottleneck(channels, channels, channels, shortcut) for _ in range(repeats))
        return nn.Sequential(*rows)

    @staticmethod
    def inner_cost(channels: int, repeats: int) -> Cost:
        """Return the cost of `inner`."""
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


def channels_and_shortcut(request: LayerRequest, usual: bool = True) -> tuple[int, bool]:
    """Return YAML args [out_channels, shortcut], with the width multiple applied.

    usual: default of shortcut.
    """
    *channels, shortcut = (*request.args, usual) if len(request.args) < 2 else request.args
    if not isinstance(shortcut, bool):
        raise UserError(f"shortcut is {brief(shortcut)}; accepted: True or False")
    return request.counts(channels, channels=None)["channels"], shortcut
