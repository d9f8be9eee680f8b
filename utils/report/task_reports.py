"""Validation results as text and plots, by task."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from duet.utils.data.sources.samples import Sample
from duet.utils.evaluation.accuracy import ClassificationResult, accuracy_table
from duet.utils.evaluation.coco.metric import MaskResult
from duet.utils.evaluation.coco.per_image import PerImage, interval, mean_over_classes
from duet.utils.report.console import metrics_table
from duet.utils.report.plots.images import plot_examples
from duet.utils.report.plots.measures import (
    plot_confusion,
    plot_over_confidence,
    plot_precision_recall,
)

CARD_DRAWS = 100  # a fraction of a second for a few hundred images


class TaskReport(NamedTuple):
    table: Callable[[Any], str]  # metrics over all classes and per class
    plot: Callable[[Any, Sequence[Sample], Path], None]  # writes plots to a folder
    per_image: Callable[[Any], PerImage] | None = None  # outcomes per image


def _plot_objects(result: Any, samples: Sequence[Sample], folder: Path) -> None:
    """Plot an `EvaluationResult`, or a `MaskResult`."""
    parts, boxes = {"": result}, result
    if isinstance(result, MaskResult):
        parts, boxes = {"Box": result.boxes, "Mask": result.masks}, result.boxes
    for name, of in parts.items():
        plot_precision_recall(of, folder / f"{name}PR_curve.png")
        plot_over_confidence(of, folder, name)
    plot_confusion(boxes.confusion, boxes.class_names, folder / "confusion_matrix.png")
    plot_examples(boxes.examples, samples, boxes.class_names, folder)


def _plot_classes(result: ClassificationResult, samples: Sequence[Sample], folder: Path) -> None:
    path = folder / "confusion_matrix.png"
    plot_confusion(result.confusion, result.class_names, path, has_background=False)


BOXES = TaskReport(metrics_table, _plot_objects, lambda result: result.per_image)
MASKS = TaskReport(metrics_table, _plot_objects, lambda result: result.masks.per_image)
CLASSES = TaskReport(accuracy_table, _plot_classes)


def map_interval(report: TaskReport, result: Any) -> tuple[float, float] | None:
    """Return the 95 % interval of mAP50-95 over drawn images; None for tasks without boxes."""
    if report.per_image is None:
        return None
    return interval(mean_over_classes(report.per_image(result).bootstrap(CARD_DRAWS)))
