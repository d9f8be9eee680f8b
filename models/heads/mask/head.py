"""The mask head: raw maps per level and prototypes, decoded to boxes with masks.

Source: Bolya et al. 2019, YOLACT, arXiv:1904.02689.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from duet.backend import nn, ops
from duet.backend.contract import Tensor
from duet.models.blocks.registry import Cost, LayerPlan, LayerRequest, register
from duet.models.blocks.yolov5 import Conv
from duet.models.heads.anchor.head import CellHead
from duet.models.heads.mask.loss import SegmentationLoss
from duet.utils.data.image.letterbox import Letterbox
from duet.utils.data.masks.assemble import native_runs
from duet.utils.errors import UserError
from duet.utils.evaluation.coco.metric import MaskEvaluator, MaskResult, coco_masks
from duet.utils.evaluation.nms import best_rows_of_images
from duet.utils.geometry.detections import Detections, Ragged, Segmentations, SuppressionSettings
from duet.utils.tasks import SEGMENTATION


class MaskRows(NamedTuple):
    """One image's candidates, and the prototypes of their masks."""

    rows: np.ndarray  # (K, 5 + C + M) float32: detection row, then coefficients
    prototypes: np.ndarray  # (M, h, w) float32


class Protonet(nn.Module):
    """3x3 convolution, 2x upsampling, 3x3 and 1x1 convolution."""

    def __init__(self, in_channels: int, channels: int, num_masks: int) -> None:
        super().__init__()
        self.cv1 = Conv(in_channels, channels, 3)
        self.cv2 = Conv(channels, channels, 3)
        self.cv3 = Conv(channels, num_masks)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to prototypes (B, M, 2H, 2W)."""
        return self.cv3(self.cv2(ops.upsample_nearest_2x(self.cv1(x))))

    @staticmethod
    def costs(
        stride: int, in_channels: int, channels: int, num_masks: int
    ) -> tuple[tuple[int, Cost], ...]:
        """Return the costs of its layers, with the stride of each computation."""
        fine = Conv.cost(channels, channels, 3) + Conv.cost(channels, num_masks)
        return (stride, Conv.cost(in_channels, channels, 3)), (stride // 2, fine)


@register("Segment", joins=True)
class MaskHead(CellHead):
    """Anchor-based head with M mask coefficients per row, and M prototypes from the first map.

    An object's mask is where the sum of the prototypes, weighted by its coefficients, is above 0
    inside the box.
    """

    task = SEGMENTATION
    loss_names = {"box": "box", "mask": "seg", "objectness": "obj", "classification": "cls"}
    metric_names = {
        "precision(B)": "P(B)", "recall(B)": "R(B)",
        "mAP_0.5(B)": "mAP50(B)", "mAP_0.5:0.95(B)": "mAP50-95(B)",
        "precision(M)": "P(M)", "recall(M)": "R(M)",
        "mAP_0.5(M)": "mAP50(M)", "mAP_0.5:0.95(M)": "mAP50-95(M)",
    }  # fmt: skip
    nothing_found = Segmentations(
        np.zeros((0, 4), np.float32),
        np.zeros(0, np.float32),
        np.zeros(0, np.int64),
        Ragged.of((), np.uint32),
    )
    loss_type = SegmentationLoss

    def __init__(
        self,
        num_classes: int,
        anchors: Sequence[Sequence[float]],
        num_masks: int,
        prototype_channels: int,
        in_channels: Sequence[int],
        strides: Sequence[int],
    ) -> None:
        super().__init__(num_classes, anchors, in_channels, strides, num_masks)
        self.proto = Protonet(in_channels[0], prototype_channels, num_masks)

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [nc, anchors, num_masks, prototype_channels]; the width multiple
        applies to the last.
        """
        if len(request.args) != 4 or not isinstance(request.args[1], (tuple, int)):
            raise UserError("accepted args: [nc, anchors, num_masks, prototype_channels]")
        args = request.counts(request.args[2:], num_masks=None, prototype_channels=None)
        num_masks, channels = args.values()
        if request.in_strides[0] % 2:
            raise UserError(f"its first source has stride {request.in_strides[0]}; it must be even")
        channels = request.scale_width(channels)
        plan = cls.plan_levels(request, num_masks, (num_masks, channels))
        costs = Protonet.costs(request.in_strides[0], request.in_channels[0], channels, num_masks)
        # Prototypes have four values per cell of the first map.
        outputs = plan.out_channels + 4 * num_masks
        return replace(plan, out_channels=outputs, costs=(*plan.costs, *costs))

    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        """Map (B, C_i, H_i, W_i) each to raw maps (B, A, H_i, W_i, 5 + C + M), and prototypes
        (B, M, 2 * H_0, 2 * W_0).
        """
        return *super().forward(*maps), self.proto(maps[0])

    def decode(self, raw: Sequence[Tensor]) -> Tensor:
        """Decode raw maps to (B, N, 5 + C + M); the prototypes, last in raw, are ignored."""
        return super().decode(raw[:-1])

    def decode_above(
        self,
        raw: Sequence[Tensor],
        settings: SuppressionSettings,
        levels: Sequence[int] | None = None,
    ) -> list[MaskRows]:
        rows = super().decode_above(raw[:-1], settings, levels)
        return [MaskRows(*image) for image in zip(rows, ops.to_numpy(raw[-1]), strict=True)]

    def of_best_class(self, decoded: MaskRows) -> MaskRows:
        return decoded._replace(rows=super().of_best_class(decoded.rows))

    def finish_images(
        self,
        decoded: Sequence[MaskRows],
        places: Sequence[Letterbox],
        settings: SuppressionSettings,
    ) -> list[Segmentations]:
        best = best_rows_of_images([self.scored_rows(image) for image in decoded], settings)
        return [
            self._with_masks(*image)
            for image in zip(decoded, places, *zip(*best, strict=True), strict=True)
        ]

    def _with_masks(
        self, decoded: MaskRows, letterbox: Letterbox, found: Detections, row: np.ndarray
    ) -> Segmentations:
        boxes = letterbox.to_original(found.boxes_xyxy)
        coefficients = decoded.rows[row, self.scored_rows(decoded).shape[1] :]
        masks = native_runs(decoded.prototypes, coefficients, boxes, letterbox)
        return Segmentations(boxes, found.scores, found.class_index, masks)

    @staticmethod
    def scored_rows(decoded: MaskRows) -> np.ndarray:
        # An exported file with NMS has as many prototypes as detections, possibly none.
        return decoded.rows[:, : decoded.rows.shape[1] - len(decoded.prototypes)]

    @classmethod
    def row_names(cls) -> Mapping[str, str]:
        """Return the mAP of boxes and masks; a row with four losses has no room for more."""
        return {"mAP_0.5:0.95(B)": "mAP(B)", "mAP_0.5:0.95(M)": "mAP(M)"}

    def make_evaluator(self, class_names: Sequence[str]) -> MaskEvaluator:
        return coco_masks(class_names)

    @staticmethod
    def class_scores(result: MaskResult) -> tuple[float, ...]:
        """Return mAP50-95 per class, averaged over boxes and masks; without objects, the mean."""
        of_both = [np.where(np.isnan(of.ap), of.map, of.ap) for of in (result.boxes, result.masks)]
        return tuple(np.mean(of_both, axis=0).tolist())
