"""The anchor head: feature maps -> raw maps per level -> decoded boxes -> detections.

Before: the layers of `models/graph.py`. After: `assign.py` and `loss.py` in training,
`utils/evaluation/nms.py` in validation. Source: the public YOLOv5 v6 head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backend import nn, ops
from backend.contract import Tensor
from backend.words import count
from models.heads.anchor.anchors import anchors_in_cells, check_anchors, unfitted_anchors
from models.heads.anchor.autoanchor import choose_anchors, number_to_fit
from models.heads.anchor.balance import LevelBalance, reference_level
from models.heads.anchor.ciou import complete_iou
from models.heads.anchor.decode import BOX_CHANNELS, decode_logits, logit
from models.heads.anchor.fused_iou import choose_box_iou
from models.heads.anchor.loss import DetectionLoss, LossGains
from models.heads.base import NO_OPTIONS, BoxHead, LossOptions
from models.registry import Cost, LayerPlan, LayerRequest, register
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.recipe_config import RecipeConfig
from utils.data.image.letterbox import Letterbox, letterbox_to_image
from utils.data.sources.samples import Sample
from utils.detections import Detections
from utils.errors import UserError
from utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from utils.evaluation.fitness import detection_fitness
from utils.evaluation.joining import join_views
from utils.evaluation.nms import SuppressionSettings, non_max_suppression
from utils.report.console import metrics_table
from utils.report.plots.confusion import plot_confusion
from utils.report.plots.curves import plot_over_confidence, plot_precision_recall
from utils.report.plots.images import plot_examples
from utils.tasks.detection import DETECTION
from utils.weights.transfer import ClassRows

PRIOR_OBJECTS_PER_IMAGE = 8  # at 640 px, for the initial objectness bias
SCORE_ROUNDING = 1e-6  # more than a float32 sigmoid can be wrong by
PRIOR_CLASS_SCORE = 0.6  # shared by all classes, for the initial class bias


@register("Detect", joins=True)
class AnchorHead(BoxHead):
    """A 1x1 convolution per level that predicts A boxes a cell.

    Attributes:
        anchors: buffer (levels, A, 2), width and height in cells of the level.
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

    def __init__(
        self,
        num_classes: int,
        anchors: Sequence[Sequence[float]],
        in_channels: Sequence[int],
        strides: Sequence[int],
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.strides = tuple(strides)
        self.num_outputs = BOX_CHANNELS + 1 + num_classes
        self.num_anchors = len(anchors[0]) // 2
        nn.register_buffer(self, "anchors", anchors_in_cells(anchors, strides))
        self.m = nn.ModuleList(
            [
                nn.Conv2d(channels, self.num_anchors * self.num_outputs, 1)
                for channels in in_channels
            ]
        )

    @classmethod
    def without_network(cls, num_classes: int) -> AnchorHead:
        """Return a head for rows that were decoded elsewhere: it finishes and scores them."""
        return cls(num_classes, anchors=((1.0, 1.0),), in_channels=(), strides=(1,))

    @classmethod
    def yaml_values(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        if "anchors" not in document:
            raise UserError("missing anchors")
        return {"anchors": check_anchors(document["anchors"])}

    @classmethod
    def fitted(
        cls,
        document: Mapping[str, Any],
        strides: Sequence[int],
        sizes_wh: np.ndarray,
        hyp: Hyperparameters,
        config: RecipeConfig,
    ) -> Mapping[str, Any]:
        anchors = document["anchors"]
        if not config.no_auto_anchor:
            anchors = choose_anchors(anchors, strides, sizes_wh, hyp, config.seed)
        elif number_to_fit(anchors, hyp):
            raise UserError(
                "--noautoanchor keeps the model's anchors, but the model YAML or the "
                "hyper-parameter `anchors` asks for new ones; leave one of them out"
            )
        return {**document, "anchors": anchors}

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [nc, anchors]."""
        if len(request.args) != 2 or not isinstance(request.args[1], (tuple, int)):
            raise UserError("accepted args: [nc, anchors]")
        num_classes, anchors = request.args
        if isinstance(anchors, int):
            anchors = unfitted_anchors(anchors, len(request.in_channels))
        if len(anchors) != len(request.in_channels):
            raise UserError(
                f"{count(len(anchors), 'level')} of anchors, "
                f"{count(len(request.in_channels), 'source')}"
            )
        outputs = len(anchors[0]) // 2 * (BOX_CHANNELS + 1 + num_classes)
        costs = tuple(
            (stride, Cost(outputs * channels, biases=outputs))
            for channels, stride in zip(request.in_channels, request.in_strides, strict=True)
        )
        numbers = sum(map(len, anchors)) + sum(cost.numbers for _, cost in costs)

        def make() -> AnchorHead:
            return cls(num_classes, anchors, request.in_channels, request.in_strides)

        return LayerPlan(make, numbers, outputs, min(request.in_strides), costs)

    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        """Map (B, C_i, H_i, W_i) each to raw maps (B, A, H_i, W_i, 5 + C), all logits."""
        raw = []
        for convolution, feature in zip(self.m, maps, strict=True):
            x = convolution(feature)
            batch, _, height, width = x.shape
            x = x.reshape(batch, self.num_anchors, self.num_outputs, height, width)
            raw.append(x.permute(0, 1, 3, 4, 2))
        return tuple(raw)

    def initial_biases(self) -> Mapping[str, np.ndarray]:
        """Return what makes first scores meet the expected rate, (A * (5 + C),) float32 a level.

        Source: Lin et al. 2017, arXiv:1708.02002, section 3.3.
        """
        biases = {}
        for level, stride in enumerate(self.strides):
            bias = np.zeros((self.num_anchors, self.num_outputs), np.float32)
            bias[:, BOX_CHANNELS] = math.log(PRIOR_OBJECTS_PER_IMAGE / (640 / stride) ** 2)
            bias[:, BOX_CHANNELS + 1 :] = math.log(
                PRIOR_CLASS_SCORE / (self.num_classes - 0.99999)  # 1 class: certain, yet finite
            )
            biases[f"m.{level}.bias"] = bias.reshape(-1)
        return biases

    def make_loss(
        self,
        hyp: Hyperparameters,
        image_size: int,
        fused_on: str | None = None,
        options: LossOptions = NO_OPTIONS,
    ) -> DetectionLoss:
        gains = LossGains.scaled(hyp, len(self.strides), self.num_classes, image_size)
        box_iou = choose_box_iou(fused_on) if fused_on else complete_iou
        reference = reference_level(self.strides) if options.autobalance else None
        balance, smoothing = LevelBalance(len(self.strides), reference), options.label_smoothing
        anchors = ops.to_numpy(self.anchors)
        return DetectionLoss(anchors, self.num_classes, gains, box_iou, balance, smoothing)

    def decode(self, raw: Sequence[Tensor]) -> Tensor:
        """Map raw maps to (B, N, 5 + C): cx, cy, w, h in pixels, objectness and class scores."""
        levels = []
        for index, (level, stride) in enumerate(zip(raw, self.strides, strict=True)):
            batch, anchors, height, width, outputs = level.shape
            cells = ops.cells(height, width, level)
            sizes = self.anchors[index].reshape(1, anchors, 1, 1, 2)
            decoded = decode_logits(level, cells, sizes, stride)
            levels.append(decoded.reshape(batch, anchors * height * width, outputs))
        return ops.cat(levels, dim=1)

    def decode_above(
        self,
        raw: Sequence[Tensor],
        confidence_threshold: float,
        levels: Sequence[int] | None = None,
    ) -> list[np.ndarray]:
        """Return the rows of `decode` that can become detections, as arrays, one (K, 5 + C) an
        image.

        These are all whose objectness is above the threshold; a few just below are among them.
        With trained weights and 0.001 it is one row of ten: decoding and fetching every row took
        ten times as long.
        """
        lowest = logit(confidence_threshold - SCORE_ROUNDING)
        levels = range(len(raw)) if levels is None else levels
        rows = [self._rows_above(level, raw[level], lowest) for level in levels]
        return [np.concatenate(image) for image in zip(*rows, strict=True)]

    def _rows_above(self, level: int, logits: Tensor, lowest: float) -> list[np.ndarray]:
        """Return the decoded rows of a level, image by image, whose objectness logit is above
        lowest.
        """
        dtype, device = ops.dtype_of(logits), ops.device_of(logits)
        above = logits[..., BOX_CHANNELS] > lowest
        image, anchor, row, column = np.nonzero(ops.to_numpy(above))
        cells = ops.tensor(np.stack((column, row), axis=-1).astype(dtype), device)
        sizes = ops.take_rows(self.anchors[level], ops.tensor(anchor, device))
        found = ops.take_where(logits, above)
        decoded = ops.to_numpy(decode_logits(found, cells, sizes, self.strides[level]))
        return np.split(decoded, np.searchsorted(image, np.arange(1, logits.shape[0])))

    def class_rows(self) -> ClassRows:
        return ClassRows("m.", before=BOX_CHANNELS + 1)

    def of_best_class(self, decoded: np.ndarray) -> np.ndarray:
        best = decoded[:, BOX_CHANNELS + 1 :].max(axis=1, keepdims=True)
        return np.concatenate((decoded[:, : BOX_CHANNELS + 1], best), axis=1)

    def finish(
        self, decoded: np.ndarray, letterbox: Letterbox, settings: SuppressionSettings
    ) -> Detections:
        found = non_max_suppression(decoded, **vars(settings))
        return found._replace(boxes_xyxy=letterbox_to_image(found.boxes_xyxy, letterbox))

    def join(
        self, found: Sequence[Detections], regions_xyxy: np.ndarray, settings: SuppressionSettings
    ) -> Detections:
        return join_views(found, regions_xyxy, settings)

    def make_evaluator(self, class_names: Sequence[str]) -> DetectionEvaluator:
        return DetectionEvaluator(class_names)

    @staticmethod
    def figures(result: EvaluationResult) -> dict[str, float]:
        values = result.mean_precision, result.mean_recall, result.map50, result.map
        return dict(zip(AnchorHead.figure_names, values, strict=True))

    @staticmethod
    def fitness(result: EvaluationResult) -> float:
        """Return a tenth of mAP50 and nine tenths of mAP50-95, as in the public YOLOv5."""
        return detection_fitness(result.map50, result.map)

    @staticmethod
    def class_scores(result: EvaluationResult) -> tuple[float, ...]:
        """Return mAP50-95 by class; the mean of the others for one without objects."""
        return tuple(np.where(np.isnan(result.ap), result.map, result.ap).tolist())

    @staticmethod
    def table(result: EvaluationResult) -> str:
        return metrics_table(result)

    @staticmethod
    def plot(result: EvaluationResult, samples: Sequence[Sample], folder: Path) -> None:
        plot_precision_recall(result, folder / "PR_curve.png")
        plot_over_confidence(result, folder)
        plot_confusion(result.confusion, result.class_names, folder / "confusion_matrix.png")
        plot_examples(result.examples, samples, result.class_names, folder)
