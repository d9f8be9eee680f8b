"""Tables of what a validation measured."""

from __future__ import annotations

import math
from collections.abc import Mapping

from utils.evaluation.coco.metric import EvaluationResult, MetricResult
from utils.evaluation.legacy.metric import LegacyResult
from utils.evaluation.masks.metric import LegacyMaskResult, MaskResult
from utils.screen.text import printable

AS_YOLOV5 = f"{'as YOLOv5 prints it':>20}, for comparing with old logs; above is COCO's metric"
COLUMNS = ("P", "R", "mAP50", "mAP50-95")
Figures = MetricResult | LegacyResult


def metrics_table(result: EvaluationResult) -> str:
    """Return COCO's figures over all classes and per class, and COCO's summary, as text."""
    return "\n".join([*_class_lines({"": result}), coco_summary(result)])


def mask_table(result: MaskResult) -> str:
    """Return the same of boxes and of masks, side by side, as text."""
    summaries = coco_summary(result.boxes, " of boxes"), coco_summary(result.masks, " of masks")
    return "\n".join([*_class_lines(_by_mark(result)), *summaries])


def legacy_table(result: LegacyResult) -> str:
    """Return YOLOv5's figures over all classes and per class, under a title that says so, as
    text.
    """
    return "\n".join([AS_YOLOV5, *_class_lines({"": result})])


def legacy_mask_table(result: LegacyMaskResult) -> str:
    """Return the same of boxes and of masks, side by side, as text."""
    return "\n".join([AS_YOLOV5, *_class_lines(_by_mark(result))])


def _by_mark(result: MaskResult | LegacyMaskResult) -> dict[str, Figures]:
    return {"(B)": result.boxes, "(M)": result.masks}


def _class_lines(results: Mapping[str, Figures]) -> list[str]:
    """Return a heading, all classes, and each that has labels: P, R, mAP50 and mAP50-95.

    results: of the same objects, by what marks their columns.
    """
    titles = [name + mark for mark in results for name in COLUMNS]
    widths = [max(len(title) + 2, 9) for title in titles]
    cells = [f"{title:>{width}}" for title, width in zip(titles, widths, strict=True)]
    lines = [f"{'class':>20}{'images':>8}{'labels':>8}{''.join(cells)}"]
    first = next(iter(results.values()))
    counts = first.num_ground_truth
    rows = [("all", int(counts.sum()), [x for one in results.values() for x in _means(one)])]
    for index, name in enumerate(first.class_names):
        if counts[index]:
            figures = [x for one in results.values() for x in _of_class(one, index)]
            rows.append((name, int(counts[index]), figures))
    for text, labels, values in rows:
        cells = [f"{value:{width}.4f}" for value, width in zip(values, widths, strict=True)]
        lines.append(f"{printable(text):>20}{first.num_images:8d}{labels:8d}{''.join(cells)}")
    return lines


def _means(result: Figures) -> tuple[float, ...]:
    return result.mean_precision, result.mean_recall, result.map50, result.map


def _of_class(result: Figures, index: int) -> tuple[float, ...]:
    return tuple(x[index] for x in (result.precision, result.recall, result.ap50, result.ap))


def coco_summary(result: MetricResult, of: str = "") -> str:
    """Return COCO's 12 figures in two lines; "-" where the labels hold nothing of a size.

    of: what the title adds.
    """
    cells = [
        f"{name:<9}{'-' if math.isnan(figure) else f'{figure:.4f}':<8}"
        for name, figure in result.summary().items()
    ]
    margin = " " * 6
    lines = [margin + "".join(row).rstrip() for row in (cells[:6], cells[6:])]
    return "\n".join([f"{'COCO summary':>20}{of}, sizes by the labelled areas", *lines])
