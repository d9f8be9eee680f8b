"""Tables on screen: validation metrics, and a row per training epoch."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from duet.utils.evaluation.coco.metric import EvaluationResult, MaskResult, MetricResult
from duet.utils.evaluation.legacy import LegacyResult
from duet.utils.text import printable

AS_YOLOV5 = f"{'as YOLOv5 prints it':>20}, for comparison with old logs; above: COCO's metrics"
COLUMNS = ("P", "R", "mAP50", "mAP50-95")
Metrics = MetricResult | LegacyResult
ROWS_A_HEADING = 25
_EPOCH_WIDTH = 7  # "100/100"
_NUMBER_WIDTH = 5  # "0.394", without the gap of two


def metrics_table(result: EvaluationResult | MaskResult) -> str:
    """Return COCO metrics over all classes and per class, and COCO's summary, as text."""
    if isinstance(result, MaskResult):
        of_boxes = coco_summary(result.boxes, " of boxes")
        summaries = [of_boxes, coco_summary(result.masks, " of masks")]
    else:
        summaries = [coco_summary(result)]
    return "\n".join([*_class_tables(result), *summaries])


def legacy_table(result: LegacyResult | MaskResult) -> str:
    """Return YOLOv5's metrics as text, in the form of `metrics_table` with a title."""
    return "\n".join([AS_YOLOV5, *_class_tables(result)])


def _class_tables(result: Metrics | MaskResult) -> list[str]:
    if isinstance(result, MaskResult):
        return [*_class_lines(result.boxes, "(B)"), *_class_lines(result.masks, "(M)")]
    return _class_lines(result, "")


def _class_lines(result: Metrics, mark: str) -> list[str]:
    """Return rows with P, R, mAP50 and mAP50-95 for all classes and for each with labels."""
    titles = [name + mark for name in COLUMNS]
    widths = [max(len(title) + 2, 9) for title in titles]
    cells = [f"{title:>{width}}" for title, width in zip(titles, widths, strict=True)]
    lines = [f"{'class':>20}{'images':>8}{'labels':>8}{''.join(cells)}"]
    counts = result.num_ground_truth.tolist()
    per_class = zip(result.precision, result.recall, result.ap50, result.ap, strict=True)
    rows = [("all", sum(counts), result.means)]
    if any(result.means):  # of a model that has found nothing, each row is zeros
        rows += [row for row in zip(result.class_names, counts, per_class, strict=True) if row[1]]
    for text, labels, values in rows:
        cells = [f"{value:{width}.4f}" for value, width in zip(values, widths, strict=True)]
        lines.append(f"{printable(text):>20}{result.num_images:8d}{labels:8d}{''.join(cells)}")
    return lines


def coco_summary(result: MetricResult, of: str = "") -> str:
    """Return COCO's 12 metrics in four lines; "-" for sizes without labels."""
    cells = [
        f"{name:<9}{'-' if math.isnan(figure) else f'{figure:.4f}':<8}"
        for name, figure in result.summary().items()
    ]
    margin = " " * 6
    lines = [margin + "".join(cells[at : at + 3]).rstrip() for at in range(0, len(cells), 3)]
    return "\n".join([f"{'COCO summary':>20}{of}, sizes by the labelled areas", *lines])


class Costs(NamedTuple):
    seconds: float  # with validation
    images_per_second: float  # of training
    wait: float  # fraction of the seconds spent waiting for data
    memory: int | None  # bytes of a GPU; None on a CPU


class EpochTable:
    """Formats a row per epoch, and repeats the heading regularly.

    losses, metrics: names on screen, `Head.loss_names` and `Head.row_names`.
    """

    def __init__(self, losses: Mapping[str, str], metrics: Mapping[str, str]) -> None:
        self._names = (*losses.values(), *metrics.values())
        names = "".join(f"{name:>{self._width(name)}}" for name in self._names)
        self._heading = f"{'epoch':>{_EPOCH_WIDTH}}{names}{'seconds':>8}{'img/s':>6}{'wait':>5}"
        self._rows = 0

    def lines(self, epoch: int, epochs: int, numbers: Sequence[float], costs: Costs) -> list[str]:
        """Return an epoch's row, preceded by a heading if due; numbers: losses and metrics."""
        memory = "" if costs.memory is None else f"{costs.memory / 2**30:9.2f}"
        heading = [self._heading + (f"{'GPU GiB':>9}" if memory else "")]
        heading = [] if self._rows % ROWS_A_HEADING else heading
        self._rows += 1
        cells = [
            f"{'-' if math.isnan(number) else f'{number:.3f}':>{self._width(name)}}"
            for name, number in zip(self._names, numbers, strict=True)
        ]
        row = f"{f'{epoch}/{epochs}':>{_EPOCH_WIDTH}}{''.join(cells)}{costs.seconds:8.1f}"
        row += f"{costs.images_per_second:6.{0 if costs.images_per_second >= 100 else 1}f}"
        row += f"{costs.wait:5.0%}{memory}"
        return [*heading, row]

    @staticmethod
    def _width(name: str) -> int:
        return max(len(name), _NUMBER_WIDTH) + 2
