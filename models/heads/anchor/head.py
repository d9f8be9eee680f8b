"""The anchor head: feature maps -> raw maps per level -> decoded boxes -> detections.

Source: the public YOLOv5 v6 head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from duet.models.blocks.registry import LayerPlan, LayerRequest, register
from duet.models.heads.anchor.cell_head import CellHead
from duet.models.heads.base import Pass
from duet.utils.data.image.letterbox import Letterbox, letterbox_to_image
from duet.utils.detections import Detections, SuppressionSettings
from duet.utils.errors import UserError
from duet.utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from duet.utils.evaluation.nms import best_rows_of_images
from duet.utils.tasks.table import DETECTION


@register("Detect", joins=True)
class AnchorHead(CellHead):
    """A 1x1 convolution per level that predicts A boxes per cell.

    Each map gives its own rows, so that views and models can be joined.
    """

    task = DETECTION
    loss_names = {"box": "box", "objectness": "obj", "classification": "cls"}
    figure_names = {
        "precision": "P", "recall": "R", "mAP_0.5": "mAP50", "mAP_0.5:0.95": "mAP50-95",
    }  # fmt: skip
    target_fields = ("image_index", "class_index", "boxes_cxcywh_norm")
    nothing_found = Detections(
        np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64)
    )
    joins_models = True
    # Scales, mirroring and unused maps are those of the public YOLOv5.
    passes = (Pass(1.0, False, max), Pass(0.83, True), Pass(0.67, False, min))

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

    def join_passes(
        self, raw: Sequence[Any], width: int, confidence_threshold: float
    ) -> list[np.ndarray]:
        """Return of each image the rows of all passes, in their order, in pixels of the image."""
        passes = []
        for one, maps in zip(self.passes, raw, strict=True):
            levels = used_levels(one, self.strides)
            found = self.decode_above(maps, confidence_threshold, levels)
            passes.append([brought_back(rows, one, width) for rows in found])
        return [np.concatenate(image) for image in zip(*passes, strict=True)]

    def finish_images(
        self,
        decoded: Sequence[np.ndarray],
        places: Sequence[Letterbox],
        settings: SuppressionSettings,
    ) -> list[Detections]:
        return [
            found._replace(boxes_xyxy=letterbox_to_image(found.boxes_xyxy, letterbox))
            for (found, _), letterbox in zip(
                best_rows_of_images(decoded, settings), places, strict=True
            )
        ]

    def make_evaluator(self, class_names: Sequence[str]) -> DetectionEvaluator:
        return DetectionEvaluator(class_names)

    @staticmethod
    def class_scores(result: EvaluationResult) -> tuple[float, ...]:
        """Return mAP50-95 by class; the mean of the others for one without objects."""
        return tuple(np.where(np.isnan(result.ap), result.map, result.ap).tolist())


def used_levels(one: Pass, strides: Sequence[int]) -> list[int]:
    """Return the maps whose rows a pass gives: of a model with one stride, all."""
    unused = one.unused(strides) if one.unused else None
    used = [level for level, stride in enumerate(strides) if stride != unused]
    return used or list(range(len(strides)))


def brought_back(rows: np.ndarray, one: Pass, width: int) -> np.ndarray:
    """Return rows (K, 4 + ...) of a pass as if found in images of this width."""
    boxes_cxcywh = rows[:, :4] / np.float32(one.scale)
    if one.mirrored:
        boxes_cxcywh[:, 0] = width - boxes_cxcywh[:, 0]
    return np.concatenate([boxes_cxcywh, rows[:, 4:]], axis=1)
