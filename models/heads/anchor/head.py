"""Anchor-based heads: a raw map per level, with a row per anchor and cell.

Source: the public YOLOv5 v6 head.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from duet.backend import fused, nn, ops
from duet.backend.contract import Tensor
from duet.models.blocks.registry import Cost, LayerPlan, LayerRequest, register
from duet.models.heads.anchor.boxes import BOX_CHANNELS, complete_iou, decode_logits
from duet.models.heads.anchor.loss import DetectionLoss
from duet.models.heads.base import Candidates, Head, LossSettings
from duet.models.heads.found_boxes import SCORE_ROUNDING, BoxHead, logit, rows_of_images
from duet.utils.errors import UserError, brief
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.tasks import DETECTION, ClassRows
from duet.utils.text import count

PRIOR_OBJECTS_PER_IMAGE = 8  # at 640 px, for the initial objectness bias
PRIOR_CLASS_SCORE = 0.6  # total over all classes, for the initial class bias
# Limits of anchors in a model YAML.
MAX_LEVELS = 5  # strides 8 to 128
MAX_NUMBERS = 64  # per level, two per anchor
MAX_SIDE = 100_000  # pixels


class CellHead(Head):
    """1x1 convolution per level that predicts A rows per cell.

    A row has a box (4 logits), objectness, C classes, and extra values of a subclass, which are not
    logits.

    Attributes:
        anchors: buffer (levels, A, 2), width and height in cells of the level.
        num_added: number of extra values per row, after the classes.
        loss_type: class of the loss returned by `make_loss`.
    """

    loss_type: type[DetectionLoss] = DetectionLoss

    def __init__(
        self,
        num_classes: int,
        anchors: Sequence[Sequence[float]],
        in_channels: Sequence[int],
        strides: Sequence[int],
        num_added: int = 0,
    ) -> None:
        super().__init__()
        self.num_classes, self.num_added = num_classes, num_added
        self.strides = tuple(strides)
        self.num_outputs = BOX_CHANNELS + 1 + num_classes + num_added
        self.num_anchors = len(anchors[0]) // 2
        nn.register_buffer(self, "anchors", anchors_in_cells(anchors, strides))
        self.m = nn.ModuleList(
            [
                nn.Conv2d(channels, self.num_anchors * self.num_outputs, 1)
                for channels in in_channels
            ]
        )

    @classmethod
    def yaml_values(cls, document: Mapping[str, object]) -> Mapping[str, object]:
        if "anchors" not in document:
            raise UserError("missing anchors")
        return {"anchors": check_anchors(document["anchors"])}

    @classmethod
    def plan_levels(
        cls, request: LayerRequest, num_added: int = 0, arguments: Sequence[object] = ()
    ) -> LayerPlan:
        """Plan the convolutions of all levels from the first YAML args, nc and anchors.

        arguments: the head's own, which its constructor takes after nc and anchors.
        """
        num_classes, anchors = request.args[:2]
        if isinstance(anchors, int):
            anchors = unfitted_anchors(anchors, len(request.in_channels))
        if len(anchors) != len(request.in_channels):
            raise UserError(
                f"{count(len(anchors), 'level')} of anchors, "
                f"{count(len(request.in_channels), 'source')}; the numbers must be equal"
            )
        outputs = len(anchors[0]) // 2 * (BOX_CHANNELS + 1 + num_classes + num_added)
        costs = tuple(
            (stride, Cost(outputs * channels, biases=outputs))
            for channels, stride in zip(request.in_channels, request.in_strides, strict=True)
        )
        kind: Any = cls
        sources = request.in_channels, request.in_strides
        return LayerPlan(
            lambda: kind(num_classes, anchors, *arguments, *sources),
            outputs,
            min(request.in_strides),
            costs,
            buffered=sum(map(len, anchors)),
        )

    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        """Map (B, C_i, H_i, W_i) each to raw maps (B, A, H_i, W_i, 5 + C + added)."""
        raw = []
        for convolution, feature in zip(self.m, maps, strict=True):
            x = convolution(feature)
            batch, _, height, width = x.shape
            x = x.reshape(batch, self.num_anchors, self.num_outputs, height, width)
            raw.append(x.permute(0, 1, 3, 4, 2))
        return tuple(raw)

    def class_rows(self) -> ClassRows:
        return ClassRows(("m.",), before=BOX_CHANNELS + 1, after=self.num_added)

    def initial_biases(self) -> Mapping[str, np.ndarray]:
        """Return initial biases that match the expected object rate, (A * (5 + C + added),) float32
        per level.

        Source: Lin et al. 2017, arXiv:1708.02002, section 3.3.
        """
        biases = {}
        for level, stride in enumerate(self.strides):
            bias = np.zeros((self.num_anchors, self.num_outputs), np.float32)
            bias[:, BOX_CHANNELS] = math.log(PRIOR_OBJECTS_PER_IMAGE / (640 / stride) ** 2)
            bias[:, BOX_CHANNELS + 1 : BOX_CHANNELS + 1 + self.num_classes] = math.log(
                PRIOR_CLASS_SCORE / (self.num_classes - 0.99999)  # finite for a single class
            )
            biases[f"m.{level}.bias"] = bias.reshape(-1)
        return biases

    def make_loss(self, settings: LossSettings) -> DetectionLoss:
        levels = len(self.strides)
        gains = settings.gains.scaled(levels, self.num_classes, settings.image_size)
        box_iou = fused.complete_iou if settings.fused else complete_iou
        return self.loss_type(
            ops.to_numpy(self.anchors),
            self.num_classes,
            gains,
            box_iou,
            settings.label_smoothing,
        )

    def decode(self, raw: Sequence[Tensor]) -> Tensor:
        """Decode to (B, N, 5 + C + added): cxcywh in pixels, objectness, class scores, extras."""
        levels = []
        for index, (level, stride) in enumerate(zip(raw, self.strides, strict=True)):
            batch, anchors, height, width, outputs = level.shape
            cells = ops.cells(height, width, level)
            sizes = self.anchors[index].reshape(1, anchors, 1, 1, 2)
            decoded = decode_logits(level, cells, sizes, stride, self.num_added)
            levels.append(decoded.reshape(batch, anchors * height * width, outputs))
        return ops.cat(levels, dim=1)

    def decode_above(
        self,
        raw: Sequence[Tensor],
        settings: SuppressionSettings,
        levels: Sequence[int] | None = None,
    ) -> list[Candidates]:
        """Return the rows of `decode` that can become detections, one array (K, ...) per image,
        from some levels or all.

        They include all rows with objectness above the threshold, and a few just below, up to the
        limit of `rows_of_images`.
        """
        lowest = logit(settings.confidence_threshold - SCORE_ROUNDING)
        levels = range(len(raw)) if levels is None else levels
        classes = slice(BOX_CHANNELS + 1, BOX_CHANNELS + 1 + self.num_classes)

        def scores_of(image: int) -> Tensor:
            maps = [raw[level][image] for level in levels]
            best = [(x[..., BOX_CHANNELS], ops.amax(x[..., classes], 3)) for x in maps]
            return ops.cat([(ops.sigmoid(x) * ops.sigmoid(y)).reshape(-1) for x, y in best])

        def decode_at(number: int, places: Sequence[np.ndarray]) -> Tensor:
            level = levels[number]
            return self._decode_at(level, ops.take_at(raw[level], places), *places[1:])

        above = [raw[level][..., BOX_CHANNELS] > lowest for level in levels]
        return rows_of_images(above, scores_of, decode_at, settings)

    def _decode_at(
        self, level: int, logits: Tensor, anchor: np.ndarray, row: np.ndarray, column: np.ndarray
    ) -> Tensor:
        """Decode a level's rows (K, ...) with anchors and cells (K,)."""
        dtype, device = ops.dtype_of(logits), ops.device_of(logits)
        cells = ops.tensor(np.stack((column, row), axis=-1).astype(dtype), device)
        sizes = ops.take_rows(self.anchors[level], ops.tensor(anchor, device))
        return decode_logits(logits, cells, sizes, self.strides[level], self.num_added)

    def of_best_class(self, decoded: Candidates) -> Candidates:
        """Convert candidates to a single class, keeping the best class's score."""
        first, end = BOX_CHANNELS + 1, BOX_CHANNELS + 1 + self.num_classes
        best = decoded[:, first:end].max(axis=1, keepdims=True)
        return np.concatenate((decoded[:, :first], best, decoded[:, end:]), axis=1)


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
        return cls.plan_levels(request)


def check_anchors(anchors: object) -> tuple[tuple[float, ...], ...] | int:
    """Return anchors per level as (width, height, width, height, ...) in pixels.

    A number of anchors per level is returned unchanged: see `unfitted_anchors`.
    """
    if type(anchors) is int and 1 <= anchors <= MAX_NUMBERS // 2:
        return anchors
    if not isinstance(anchors, Sequence) or isinstance(anchors, str) or not anchors:
        raise UserError(
            f"anchors: {brief(anchors)}; accepted: a list per level of [w, h, w, h, ...], or the "
            f"number of anchors per level, from 1 to {MAX_NUMBERS // 2}"
        )
    if len(anchors) > MAX_LEVELS:
        raise UserError(f"anchors: {count(len(anchors), 'level')}; accepted: at most {MAX_LEVELS}")
    for level in anchors:
        if not _is_level(level) or len(level) != len(anchors[0]):
            raise UserError(
                f"anchors: {brief(level)}; every level must list the same number of [w, h, ...] in "
                f"pixels, at most {MAX_NUMBERS}"
            )
    return tuple(tuple(float(value) for value in level) for level in anchors)


def _is_level(level: object) -> bool:
    return (
        isinstance(level, Sequence)
        and 0 < len(level) <= MAX_NUMBERS
        and len(level) % 2 == 0
        # Models whose anchors were never fitted have sides of 0.
        and all(isinstance(value, (int, float)) and 0 <= value <= MAX_SIDE for value in level)
    )


def unfitted_anchors(number: int, levels: int) -> tuple[tuple[float, ...], ...]:
    """Return placeholder anchors for `anchors: NUMBER` until they are fitted to a dataset.

    The sides are 0, 1, 2, ... pixels on each level, as in the public models.
    """
    return (tuple(map(float, range(2 * number))),) * levels


def anchors_in_cells(anchors: Sequence[Sequence[float]], strides: Sequence[int]) -> np.ndarray:
    """Convert anchors from pixels, [w, h, ...] per level, to (levels, A, 2) float32 in cells."""
    pixels = np.asarray(anchors, np.float32).reshape(len(anchors), -1, 2)
    return pixels / np.asarray(strides, np.float32).reshape(-1, 1, 1)
