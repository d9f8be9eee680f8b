"""Attention over all cells of a map, inside a cross-stage partial block.

Sub-layers have shortcuts and no LayerNorm, and the feed-forward part has no activation, which
matches the public model's stored outputs. Attention: Vaswani et al. 2017, arXiv:1706.03762.
"""

import math

import numpy as np

from duet.backend import nn, ops
from duet.backend.contract import Tensor
from duet.models.blocks.registry import Cost, LayerPlan, LayerRequest, register
from duet.models.blocks.yolov5 import C3
from duet.utils.errors import UserError

HEADS = 4


class Linear(nn.Module):
    """Linear layer with weight (out, in) and an optional bias."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        weight = np.zeros((out_features, in_features), np.float32)
        nn.register_parameter(self, "weight", weight)
        if bias:
            nn.register_parameter(self, "bias", np.zeros(out_features, np.float32))
        self.has_bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, in) to (B, N, out)."""
        return ops.linear(x, self.weight, self.bias if self.has_bias else None)


class Attention(nn.Module):
    """Multi-head attention with the three projections in one weight, as in the public files."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        weight = np.zeros((3 * channels, channels), np.float32)
        nn.register_parameter(self, "in_proj_weight", weight)
        nn.register_parameter(self, "in_proj_bias", np.zeros(3 * channels, np.float32))
        self.out_proj = Linear(channels, channels)
        self.channels = channels

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Map (B, N, C) each to (B, N, C)."""
        q, k, v = (self._heads(x, part) for part, x in enumerate((query, key, value)))
        scale = 1 / math.sqrt(self.channels // HEADS)
        attention = ops.softmax(ops.matmul(q * scale, k.permute(0, 1, 3, 2)))
        batch, cells, channels = query.shape
        joined = ops.matmul(attention, v).permute(0, 2, 1, 3).reshape(batch, cells, channels)
        return self.out_proj(joined)

    def _heads(self, x: Tensor, part: int) -> Tensor:
        """Apply one of the three projections to (B, N, C); split to (B, heads, N, C / heads)."""
        batch, cells, channels = x.shape
        rows = slice(part * channels, (part + 1) * channels)
        projected = ops.linear(x, self.in_proj_weight[rows], self.in_proj_bias[rows])
        return projected.reshape(batch, cells, HEADS, channels // HEADS).permute(0, 2, 1, 3)


class TransformerLayer(nn.Module):
    """Attention, then two linear layers, each part with a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.q = Linear(channels, channels, bias=False)
        self.k = Linear(channels, channels, bias=False)
        self.v = Linear(channels, channels, bias=False)
        self.ma = Attention(channels)
        self.fc1 = Linear(channels, channels, bias=False)
        self.fc2 = Linear(channels, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, C) to (B, N, C)."""
        x = self.ma(self.q(x), self.k(x), self.v(x)) + x
        return self.fc2(self.fc1(x)) + x


class TransformerBlock(nn.Module):
    """Transformer layers over cells as a sequence, with a linear layer as position embedding."""

    def __init__(self, channels: int, repeats: int) -> None:
        super().__init__()
        self.linear = Linear(channels, channels)
        self.tr = nn.Sequential(*(TransformerLayer(channels) for _ in range(repeats)))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, H, W)."""
        batch, channels, height, width = x.shape
        cells = x.reshape(batch, channels, height * width).permute(0, 2, 1)
        cells = self.tr(cells + self.linear(cells))
        return cells.permute(0, 2, 1).reshape(batch, channels, height, width)


@register("C3TR", repeats=True)
class C3TR(C3):
    """`C3` with a transformer block instead of bottlenecks."""

    @staticmethod
    def inner(channels: int, repeats: int, shortcut: bool) -> nn.Module:
        return TransformerBlock(channels, repeats)

    @staticmethod
    def inner_cost(channels: int, repeats: int) -> Cost:
        # Per layer: q, k, v, their three projections, the output projection, fc1 and fc2.
        weights, biases = 9 * channels**2, 4 * channels
        layer = Cost(weights, biases=biases, attended=2 * channels, heads=HEADS)
        return Cost(channels**2, biases=channels) + layer * repeats

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        plan = super().plan(request)
        if plan.out_channels // 2 % HEADS:
            raise UserError(f"{plan.out_channels // 2} channels do not split into {HEADS} heads")
        return plan
