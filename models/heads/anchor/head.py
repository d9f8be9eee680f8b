"""YOLOv5's anchor-based box head.

Source: the public YOLOv5 v6 head.
"""

from __future__ import annotations

from duet.models.blocks.registry import LayerPlan, LayerRequest, register
from duet.models.heads.anchor.cell_head import CellHead
from duet.models.heads.found_boxes import BoxHead
from duet.utils.errors import UserError
from duet.utils.tasks.table import DETECTION


@register("Detect", joins=True)
class AnchorHead(CellHead, BoxHead):
    """1x1 convolution per level that predicts A boxes per cell."""

    task = DETECTION
    loss_names = {"box": "box", "objectness": "obj", "classification": "cls"}

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [nc, anchors]."""
        if len(request.args) != 2 or not isinstance(request.args[1], (tuple, int)):
            raise UserError("accepted args: [nc, anchors]")
        levels = cls.plan_levels(request)

        def make() -> AnchorHead:
            return cls(request.args[0], levels.anchors, request.in_channels, request.in_strides)

        stride = min(request.in_strides)
        return LayerPlan(make, levels.outputs, stride, levels.costs, levels.buffered)
