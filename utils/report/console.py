"""Tables of what a validation measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from utils.evaluation.coco.metric import EvaluationResult
from utils.evaluation.legacy.metric import LegacyResult
from utils.screen.text import printable


def metrics_table(result: EvaluationResult) -> str:
    """Return COCO's figures over all classes and per class, and COCO's summary, as text."""
    return "\n".join([*_class_lines(result), coco_summary(result)])


def legacy_table(result: LegacyResult) -> str:
    """Return YOLOv5's figures over all classes and per class, under a title that says so, as
    text.
    """
    title = f"{'as YOLOv5 prints it':>20}, for comparing with old logs; above is COCO's metric"
    return "\n".join([title, *_class_lines(result)])


def _class_lines(result: EvaluationResult | LegacyResult) -> list[str]:
    """Return a heading, all classes, and each that has labels: P, R, mAP50 and mAP50-95."""
    lines = [f"{'class':>20}{'images':>8}{'labels':>8}{'P':>9}{'R':>9}{'mAP50':>9}{'mAP50-95':>10}"]
    rows: list[tuple[str, int, Sequence[float]]] = [
        (
            "all",
            int(result.num_ground_truth.sum()),
            (result.mean_precision, result.mean_recall, result.map50, result.map),
        )
    ]
    for index, name in enumerate(result.class_names):
        if result.num_ground_truth[index]:
            measures = (result.precision, result.recall, result.ap50, result.ap)
            figures = [measure[index] for measure in measures]
            rows.append((name, int(result.num_ground_truth[index]), figures))
    for text, labels, values in rows:
        name = printable(text)
        precision, recall, ap50, ap = values
        lines.append(
            f"{name:>20}{result.num_images:8d}{labels:8d}"
            f"{precision:9.4f}{recall:9.4f}{ap50:9.4f}{ap:10.4f}"
        )
    return lines


def coco_summary(result: EvaluationResult) -> str:
    """Return COCO's 12 figures in two lines; "-" where the labels hold nothing of a size."""
    cells = [
        f"{name:<9}{'-' if math.isnan(figure) else f'{figure:.4f}':<8}"
        for name, figure in result.summary().items()
    ]
    margin = " " * 6
    lines = [margin + "".join(row).rstrip() for row in (cells[:6], cells[6:])]
    return "\n".join([f"{'COCO summary':>20}, sizes by the labelled areas", *lines])
