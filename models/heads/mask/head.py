"""The mask head: feature maps -> raw maps per level and prototypes -> boxes with their pixels.

Before: the layers of `models/graph.py`. After: `loss.py` in training, `utils/evaluation/nms.py`
and `utils/masks/assemble.py` in validation. Source: Bolya et al. 2019, YOLACT, arXiv:1904.02689.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from backend import ops
from backend.contract import Tensor
from models.heads.anchor.cell_head import CellHead
from models.heads.anchor.decode import BOX_CHANNELS
from models.heads.mask.exported import rows_of_masks
from models.heads.mask.loss import SegmentationLoss
from models.heads.mask.protonet import Protonet
from models.heads.mask.scored import ScoredMasks
from models.registry import MAX_CHANNELS, LayerPlan, LayerRequest, register
from utils.data.image.letterbox import Letterbox, letterbox_to_image
from utils.detections import Detections, Segmentations
from utils.errors import UserError, brief
from utils.evaluation.nms import SuppressionSettings, best_rows_of_images
from utils.masks.assemble import native_runs
from utils.runtimes.metadata import MASK_ROWS, MASKS
from utils.runtimes.outputs import MOST_MASKS
from utils.tasks.segmentation import SEGMENTATION

MOST_PROTOTYPES = 1024  # of an image; the public models have 32


class MaskRows(NamedTuple):
    """What may be found in one image, and what its masks are mixed of."""

    rows: np.ndarray  # (K, 5 + C + M) float32: as a row of detection, then coefficients
    prototypes: np.ndarray  # (M, h, w) float32


@register("Segment", joins=True)
class MaskHead(ScoredMasks, CellHead):
    """A head of cells whose rows end in M coefficients, and M prototypes of the first map.

    The mask of an object is where the sum of the prototypes, each times its coefficient, is
    above 0, inside the box.
    """

    task = SEGMENTATION
    loss_names = {"box": "box", "mask": "seg", "objectness": "obj", "classification": "cls"}
    target_fields = ("image_index", "class_index", "boxes_cxcywh_norm", "masks")
    exported_kinds = MASK_ROWS, MASKS
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
        scales the last.
        """
        if len(request.args) != 4 or not isinstance(request.args[1], (tuple, int)):
            raise UserError("accepted args: [nc, anchors, num_masks, prototype_channels]")
        num_classes, _, num_masks, channels = request.args
        _require_count("num_masks", num_masks, MOST_PROTOTYPES)
        _require_count("prototype_channels", channels, MAX_CHANNELS)
        if request.in_strides[0] % 2:
            raise UserError(
                f"its first source has stride {request.in_strides[0]}; an even one is needed"
            )
        channels = request.scale_width(channels)
        levels = cls.plan_levels(request, num_masks)
        costs = Protonet.costs(request.in_strides[0], request.in_channels[0], channels, num_masks)
        numbers = levels.numbers + sum(cost.numbers for _, cost in costs)
        sources = request.in_channels, request.in_strides

        def make() -> MaskHead:
            return cls(num_classes, levels.anchors, num_masks, channels, *sources)

        # Prototypes have four numbers where the first map has a cell.
        outputs, stride = levels.outputs + 4 * num_masks, min(request.in_strides)
        return LayerPlan(make, numbers, outputs, stride, (*levels.costs, *costs))

    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        """Map (B, C_i, H_i, W_i) each to raw maps (B, A, H_i, W_i, 5 + C + M), and prototypes
        (B, M, 2 * H_0, 2 * W_0).
        """
        return *super().forward(*maps), self.proto(maps[0])

    def decode(self, raw: Sequence[Tensor]) -> Tensor:
        """Map raw maps to (B, N, 5 + C + M); the prototypes, last in raw, stay as they are."""
        return super().decode(raw[:-1])

    def decode_above(self, raw: Sequence[Tensor], confidence_threshold: float) -> list[MaskRows]:
        rows = self.rows_above(raw[:-1], confidence_threshold)
        return [MaskRows(*image) for image in zip(rows, ops.to_numpy(raw[-1]), strict=True)]

    def of_best_class(self, decoded: MaskRows) -> MaskRows:
        first, end = BOX_CHANNELS + 1, BOX_CHANNELS + 1 + self.num_classes
        best = decoded.rows[:, first:end].max(axis=1, keepdims=True)
        rows = decoded.rows[:, :first], best, decoded.rows[:, end:]
        return decoded._replace(rows=np.concatenate(rows, axis=1))

    def finish(
        self, decoded: MaskRows, letterbox: Letterbox, settings: SuppressionSettings
    ) -> Segmentations:
        (found,) = self.finish_images([decoded], [letterbox], settings)
        return found

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
        boxes = letterbox_to_image(found.boxes_xyxy, letterbox)
        coefficients = decoded.rows[row, self.scored_rows(decoded).shape[1] :]
        masks = native_runs(decoded.prototypes, coefficients, boxes, letterbox)
        return Segmentations(boxes, found.scores, found.class_index, masks)

    @staticmethod
    def scored_rows(decoded: MaskRows) -> np.ndarray:
        # A file that suppresses has as many prototypes as it found objects, perhaps none.
        return decoded.rows[:, : decoded.rows.shape[1] - len(decoded.prototypes)]

    @classmethod
    def exported_kind(cls, nms: bool, efficient_nms: bool, letterbox: bool) -> str:
        if letterbox:
            raise UserError(
                "--letterbox: masks lie over the network's input, not over the image; leave it out"
            )
        if efficient_nms:
            raise UserError("--efficient-nms: TensorRT's operator has no masks; give only --nms")
        return MASKS if nms else MASK_ROWS

    def exported(self, raw: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self.decode(raw), raw[-1]

    @classmethod
    def without_network(cls, num_classes: int) -> MaskHead:
        return cls(num_classes, ((1.0, 1.0),), 1, 1, in_channels=(1,), strides=(1,))

    def from_exported(
        self, kind: str, outputs: tuple[np.ndarray, ...], confidence_threshold: float
    ) -> MaskRows:
        rows, prototypes = outputs
        if not (np.isfinite(rows).all() and np.isfinite(prototypes).all()):
            raise UserError("its outputs are not finite (NaN or infinite); export it again")
        if kind == MASKS:
            if len(rows) > MOST_MASKS:
                raise UserError(
                    f"it returns {len(rows):,} masks per image, and at most {MOST_MASKS:,} are "
                    "read; export it with a smaller --topk-all, or without --nms"
                )
            rows, prototypes = rows_of_masks(rows, prototypes, self.num_classes)
        return MaskRows(rows[rows[:, BOX_CHANNELS] > confidence_threshold], prototypes)


def _require_count(name: str, value: object, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise UserError(f"{name} is {brief(value)}; a whole number from 1 to {most} is needed")
