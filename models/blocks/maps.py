"""Feature maps enlarged and joined; nothing here is trained."""

from __future__ import annotations

from backend import nn, ops
from backend.contract import Tensor
from models.registry import LayerPlan, LayerRequest, register
from utils.errors import UserError, brief


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
