"""How segmentation is scored: the figures of boxes and of masks, by name.

Before: `Head.finish`. After: results.csv, the screen and the plots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from models.heads.base import Head
from utils.data.sources.samples import Sample
from utils.detections import Segmentations
from utils.evaluation.coco.metric import EvaluationResult, MetricResult
from utils.evaluation.fitness import detection_fitness
from utils.evaluation.masks.metric import MaskEvaluator, MaskResult, coco_masks
from utils.ragged import Ragged
from utils.report.console import mask_table
from utils.report.plots.confusion import plot_confusion
from utils.report.plots.curves import plot_over_confidence, plot_precision_recall
from utils.report.plots.images import plot_examples
from utils.report.plots.masks import draw_objects


class ScoredMasks(Head):
    """A head that finds `Segmentations`; everything but their scores is a subclass's."""

    figure_names = {
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

    @classmethod
    def row_names(cls) -> Mapping[str, str]:
        """Return the mAP of boxes and of masks: a row with four losses has no room for more."""
        return {"mAP_0.5:0.95(B)": "mAP(B)", "mAP_0.5:0.95(M)": "mAP(M)"}

    def make_evaluator(
        self, class_names: Sequence[str]
    ) -> MaskEvaluator[EvaluationResult, MetricResult]:
        return coco_masks(class_names)

    @staticmethod
    def figures(result: MaskResult) -> dict[str, float]:
        values = [
            value
            for of in (result.boxes, result.masks)
            for value in (of.mean_precision, of.mean_recall, of.map50, of.map)
        ]
        return dict(zip(ScoredMasks.figure_names, values, strict=True))

    @staticmethod
    def fitness(result: MaskResult) -> float:
        """Return the fitness of boxes plus that of masks, as in the public YOLOv5."""
        return sum(detection_fitness(of.map50, of.map) for of in (result.boxes, result.masks))

    @staticmethod
    def class_scores(result: MaskResult) -> tuple[float, ...]:
        """Return mAP50-95 by class, the mean of boxes and masks; that of the others for a class
        without objects.
        """
        of_both = [np.where(np.isnan(of.ap), of.map, of.ap) for of in (result.boxes, result.masks)]
        return tuple(np.mean(of_both, axis=0).tolist())

    @staticmethod
    def table(result: MaskResult) -> str:
        return mask_table(result)

    @staticmethod
    def plot(result: MaskResult, samples: Sequence[Sample], folder: Path) -> None:
        for name, of in (("Box", result.boxes), ("Mask", result.masks)):
            plot_precision_recall(of, folder / f"{name}PR_curve.png")
            plot_over_confidence(of, folder, name)
        boxes = result.boxes
        plot_confusion(boxes.confusion, boxes.class_names, folder / "confusion_matrix.png")
        plot_examples(boxes.examples, samples, boxes.class_names, folder, draw_objects)
