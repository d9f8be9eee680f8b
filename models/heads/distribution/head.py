"""The anchor-free head: predicts distributions of four edges and class logits per cell.

Each cell predicts one box by the distances of its edges from the cell's centre. A distance is the
mean of a distribution over whole cells. Sources: Li et al. 2020, Generalized Focal Loss,
arXiv:2006.04388; branches: Ge et al. 2021, YOLOX, arXiv:2107.08430; names and sizes: published for
YOLOv5u and YOLOv8.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from duet.backend import fused, nn, ops
from duet.backend.contract import Tensor
from duet.models.blocks.registry import Cost, LayerPlan, LayerRequest, register
from duet.models.blocks.yolov5 import Conv
from duet.models.heads.anchor.boxes import complete_iou
from duet.models.heads.base import LossSettings
from duet.models.heads.distribution.loss import DistributionLoss
from duet.models.heads.distribution.rows import BINS, EDGE_LOGITS, boxes_of_rows, rows_of_maps
from duet.models.heads.found_boxes import SCORE_ROUNDING, BoxHead, logit, rows_of_images
from duet.utils.errors import UserError
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.tasks import ANCHOR_FREE, ClassRows

PRIOR_OBJECTS_PER_IMAGE = 5  # at 640 px, for the initial class bias
PRIOR_EDGE_BIAS = 2.0
LEAST_BOX_CHANNELS, MOST_CLASS_CHANNELS = 64, 100


class Integral(nn.Module):
    """The fixed bins 0 to 15 under their public parameter name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential()
        bins = np.arange(BINS, dtype=np.float32).reshape(1, BINS, 1, 1)
        nn.register_buffer(self.conv, "weight", bins)


@register("DetectAnchorFree", joins=True)
class DistributionHead(BoxHead):
    """Two 3x3 convolutions and a 1x1 one per level, separately for edges and classes."""

    task = ANCHOR_FREE
    loss_names = {"box": "box", "classification": "cls", "distribution": "dfl"}
    draws_biases = False

    def __init__(
        self, num_classes: int, in_channels: Sequence[int], strides: Sequence[int]
    ) -> None:
        super().__init__()
        self.num_classes, self.strides = num_classes, tuple(strides)
        hidden = hidden_channels(in_channels[0], num_classes)
        outputs = (EDGE_LOGITS, num_classes)
        self.cv2, self.cv3 = (
            nn.ModuleList([branch(channels, inside, number) for channels in in_channels])
            for inside, number in zip(hidden, outputs, strict=True)
        )
        self.dfl = Integral()

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [nc]."""
        if len(request.args) != 1:
            raise UserError("accepted args: [nc]")
        (num_classes,) = request.args
        channels, strides = request.in_channels, request.in_strides
        hidden = hidden_channels(channels[0], num_classes)
        costs = tuple(
            (stride, branch_cost(size, inside, number))
            for size, stride in zip(channels, strides, strict=True)
            for inside, number in zip(hidden, (EDGE_LOGITS, num_classes), strict=True)
        )
        outputs = EDGE_LOGITS + num_classes
        return LayerPlan(
            lambda: cls(num_classes, channels, strides), outputs, min(strides), costs, BINS
        )

    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        """Map (B, C_i, H_i, W_i) each to raw maps (B, 64 + C, H_i, W_i): logits of 16 distances
        each for the left, top, right and bottom edge, then the classes.
        """
        branches = zip(self.cv2, self.cv3, maps, strict=True)
        return tuple(ops.cat([edges(x), classes(x)], dim=1) for edges, classes, x in branches)

    def class_rows(self) -> ClassRows:
        return ClassRows(tuple(f"cv3.{level}.2." for level in range(len(self.strides))))

    def initial_biases(self) -> Mapping[str, np.ndarray]:
        """Return initial biases that match the expected object rate."""
        biases = {}
        for level, stride in enumerate(self.strides):
            prior = math.log(PRIOR_OBJECTS_PER_IMAGE / self.num_classes / (640 / stride) ** 2)
            biases[f"cv2.{level}.2.bias"] = np.full(EDGE_LOGITS, PRIOR_EDGE_BIAS, np.float32)
            biases[f"cv3.{level}.2.bias"] = np.full(self.num_classes, prior, np.float32)
        return biases

    def make_loss(self, settings: LossSettings) -> DistributionLoss:
        box_iou = fused.complete_iou if settings.fused else complete_iou
        return DistributionLoss(self.strides, self.num_classes, settings.gains, box_iou)

    def decode(self, raw: Sequence[Tensor]) -> Tensor:
        """Decode raw maps to (B, N, 5 + C): cxcywh in pixels, 1, and class scores."""
        levels = []
        for level, stride in zip(raw, self.strides, strict=True):
            batch, outputs, height, width = level.shape
            cells = ops.cells(height, width, level).reshape(1, height * width, 2)
            levels.append(self._decode(rows_of_maps([level]), cells, stride))
        return ops.cat(levels, dim=1)

    def _decode(self, rows: Tensor, cells: Tensor, stride: int) -> Tensor:
        """Decode a level's rows (..., 64 + C) with cells (..., 2)."""
        boxes = boxes_of_rows(rows[..., :EDGE_LOGITS], cells + 0.5) * stride
        scores = ops.sigmoid(rows[..., EDGE_LOGITS:])
        return ops.cat([boxes, scores[..., :1] * 0.0 + 1.0, scores], dim=rows.ndim - 1)

    def decode_above(
        self,
        raw: Sequence[Tensor],
        settings: SuppressionSettings,
        levels: Sequence[int] | None = None,
    ) -> list[np.ndarray]:
        """Return the rows of `decode` that can become detections, one array (K, 5 + C) per image,
        from some levels or all.

        They include all rows with a class score above the threshold, and a few just below, up to
        the limit of `rows_of_images`.
        """
        lowest = logit(settings.confidence_threshold - SCORE_ROUNDING)
        levels = range(len(raw)) if levels is None else levels
        best = [ops.amax(raw[level][:, EDGE_LOGITS:], 1) for level in levels]

        def scores_of(image: int) -> Tensor:
            return ops.sigmoid(ops.cat([x[image].reshape(-1) for x in best]))

        def decode_at(number: int, places: Sequence[np.ndarray]) -> Tensor:
            level = levels[number]
            rows = ops.take_at(raw[level].permute(0, 2, 3, 1), places)
            cells = np.stack((places[2], places[1]), axis=-1).astype(ops.dtype_of(rows))
            return self._decode(rows, ops.tensor(cells, ops.device_of(rows)), self.strides[level])

        above = [scores > lowest for scores in best]
        return rows_of_images(above, scores_of, decode_at, settings)

    def of_best_class(self, decoded: np.ndarray) -> np.ndarray:
        best = decoded[:, 5:].max(axis=1, keepdims=True)
        return np.concatenate((decoded[:, :5], best), axis=1)


def hidden_channels(first_channels: int, num_classes: int) -> tuple[int, int]:
    """Return the hidden channels of the edge and class branches, given the first map's channels."""
    box = max(first_channels // 4, LEAST_BOX_CHANNELS)
    return box, max(first_channels, min(num_classes, MOST_CLASS_CHANNELS))


def branch(in_channels: int, hidden: int, outputs: int) -> nn.Sequential:
    """Return a branch, mapping (B, in, H, W) to (B, outputs, H, W)."""
    return nn.Sequential(
        Conv(in_channels, hidden, 3), Conv(hidden, hidden, 3), nn.Conv2d(hidden, outputs, 1)
    )


def branch_cost(in_channels: int, hidden: int, outputs: int) -> Cost:
    convolutions = Conv.cost(in_channels, hidden, 3) + Conv.cost(hidden, hidden, 3)
    return convolutions + Cost(hidden * outputs, biases=outputs)
