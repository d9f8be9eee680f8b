"""The anchor head: feature maps -> raw maps per level -> decoded boxes -> detections.

Source: the public YOLOv5 v6 head.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backend.contract import Tensor
from models.blocks.registry import LayerPlan, LayerRequest, register
from models.heads.anchor.cell_head import CellHead
from models.heads.anchor.decode import BOX_CHANNELS, rows_of_detections
from models.heads.base import Pass, brought_back, used_levels
from utils.data.image.letterbox import Letterbox, letterbox_to_image
from utils.data.sources.samples import Sample
from utils.detections import Detections
from utils.errors import UserError
from utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from utils.evaluation.joining import join_views
from utils.evaluation.nms import SuppressionSettings, best_rows_of_images
from utils.export.metadata import DETECTIONS, EFFICIENT, ROWS
from utils.report.console import metrics_table
from utils.report.plots.images import plot_examples
from utils.report.plots.measures import (
    plot_confusion,
    plot_over_confidence,
    plot_precision_recall,
)
from utils.tasks.detection import DETECTION


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
    exported_kinds = ROWS, DETECTIONS, EFFICIENT
    joins_models = True
    # Scales, mirroring and unused maps are those of the public YOLOv5.
    passes = (Pass(1.0, False, max), Pass(0.83, True), Pass(0.67, False, min))

    def exported(self, raw: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (self.decode(raw),)

    @classmethod
    def without_network(cls, num_classes: int) -> AnchorHead:
        return cls(num_classes, anchors=((1.0, 1.0),), in_channels=(), strides=(1,))

    def from_exported(
        self, kind: str, outputs: tuple[np.ndarray, ...], confidence_threshold: float
    ) -> np.ndarray:
        (rows,) = outputs
        if kind == DETECTIONS:
            rows = rows_of_detections(rows, self.num_classes)
        return rows[rows[:, BOX_CHANNELS] > confidence_threshold]

    @classmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Plan from YAML args [nc, anchors]."""
        if len(request.args) != 2 or not isinstance(request.args[1], (tuple, int)):
            raise UserError("accepted args: [nc, anchors]")
        levels = cls.plan_levels(request)

        def make() -> AnchorHead:
            return cls(request.args[0], levels.anchors, request.in_channels, request.in_strides)

        stride = min(request.in_strides)
        return LayerPlan(make, levels.numbers, levels.outputs, stride, levels.costs)

    def decode_above(
        self,
        raw: Sequence[Tensor],
        confidence_threshold: float,
        levels: Sequence[int] | None = None,
    ) -> list[np.ndarray]:
        """Return of each image the rows (K, 5 + C) that may become detections, of some levels."""
        return self.rows_above(raw, confidence_threshold, levels)

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

    def of_best_class(self, decoded: np.ndarray) -> np.ndarray:
        best = decoded[:, BOX_CHANNELS + 1 :].max(axis=1, keepdims=True)
        return np.concatenate((decoded[:, : BOX_CHANNELS + 1], best), axis=1)

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

    def join(
        self, found: Sequence[Detections], regions_xyxy: np.ndarray, settings: SuppressionSettings
    ) -> Detections:
        return join_views(found, regions_xyxy, settings)

    def make_evaluator(self, class_names: Sequence[str]) -> DetectionEvaluator:
        return DetectionEvaluator(class_names)

    @staticmethod
    def figures(result: EvaluationResult) -> dict[str, float]:
        return dict(zip(AnchorHead.figure_names, result.means, strict=True))

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
