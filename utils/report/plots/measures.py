"""Validation plots: precision and recall curves, and the confusion matrix."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from duet.utils.colours import COLOURS
from duet.utils.evaluation.coco.confusion import CONFIDENCE_ABOVE, IOU_ABOVE, Confusion
from duet.utils.evaluation.coco.metric import MetricResult
from duet.utils.evaluation.coco.precision import CONFIDENCE_GRID, RECALL_GRID
from duet.utils.report.plots.style import (
    GREY,
    INK,
    Axes,
    Figure,
    empty_figure,
    figure_name,
    line_colour,
    named_classes,
    new_figure,
    save_figure,
    set_fonts,
)
from duet.utils.text import count

log = logging.getLogger("plots")
FAINT, THIN = "#D4D4D4", 0.6
MAX_CLASSES = 100  # with names; above, classes are numbers
MOST_CLASSES = 2000  # above, the matrix would take too much memory
MAX_NUMBERED = 30  # largest number of classes for which cells show numbers
LEAST_NUMBER = 0.005  # smaller fractions would be shown as 0.00
DARK = 0.55  # cells above this have white numbers
CELL, MOST = 0.44, 11.5  # inches: one cell, and all cells at most


def plot_precision_recall(result: MetricResult, path: Path) -> None:
    """Plot precision over recall at IoU 0.50, per class and averaged.

    With more than seven classes, those with the most labels are named and the others grey.
    """
    curves = result.precision_curves[:, 0]
    figure, axes = _draw(result, RECALL_GRID, curves, result.ap50, "AP50")
    axes.set(title="Precision over recall at IoU 0.50", xlabel="recall", ylabel="precision")
    save_figure(figure, path)


def plot_over_confidence(result: MetricResult, folder: Path, of: str = "") -> None:
    """Plot precision, recall and F1 over confidence, each to a file in the folder.

    A line marks the confidence of the highest mean F1, where the legend's values are taken.

    of: prefix of the file names.
    """
    both = result.precision + result.recall
    f1 = np.divide(2 * result.precision * result.recall, both, out=0 * both, where=both > 0)
    for name, curves, values in zip(
        ("Precision", "Recall", "F1"),
        result.by_confidence,
        (result.precision, result.recall, f1),
        strict=True,
    ):
        title = f"{name} at {result.confidence:.3f}"
        figure, axes = _draw(result, CONFIDENCE_GRID, curves, values, title)
        if result.num_ground_truth.any():
            axes.axvline(result.confidence, color=INK, linewidth=0.8, linestyle=":")
        axes.set(title=f"{name} over confidence, at IoU 0.50", xlabel="confidence")
        axes.set_ylabel(name if name == "F1" else name.lower())
        save_figure(figure, folder / f"{of}{name[0] if name != 'F1' else name}_curve.png")


def _draw(
    result: MetricResult, x: np.ndarray, curves: np.ndarray, values: np.ndarray, title: str
) -> tuple[Figure, Axes]:
    """Return a figure and its axes: curves (C, N) over x (N,), their mean, and a legend.

    Curves of classes without ground truth are NaN; values (C,) and title are for the legend.
    """
    from matplotlib.collections import LineCollection

    evaluated = np.flatnonzero(result.num_ground_truth)
    named = named_classes(result.num_ground_truth)
    others = [index for index in evaluated.tolist() if index not in named]
    figure, axes = new_figure(1, 1, width=8.5, height=6)
    lines = [np.stack((x, curves[index]), axis=1) for index in others]
    axes.add_collection(LineCollection(lines, colors=FAINT, linewidths=THIN))
    for index in named:
        label = f"{values[index]:.3f}  {figure_name(result.class_names, index)}"
        axes.plot(x, curves[index], color=line_colour(index), linewidth=1.6, label=label)
    if others:
        axes.plot([], [], color=FAINT, label=count(len(others), "other class", "other classes"))
    if len(evaluated):
        mean = np.ma.masked_invalid(curves[evaluated]).mean(axis=0).filled(np.nan)
        label = f"{values[evaluated].mean():.3f}  mean of "
        label += count(len(evaluated), "class", "classes")
        axes.plot(x, mean, color=INK, linewidth=3, label=label)
        legend = figure.legend(
            title=title, frameon=False, loc="outside right upper", alignment="left"
        )
        set_fonts(legend.get_texts())
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure, axes


def plot_confusion(
    confusion: Confusion, class_names: Sequence[str], path: Path, has_background: bool = True
) -> None:
    """Plot the fraction of objects of each true class (column) predicted as each class (row).

    The last row is missed objects, the last column false detections, unless has_background is
    False. Each column sums to 1.
    """
    if confusion.num_classes > MOST_CLASSES:
        log.info("no confusion matrix: over %s classes", f"{MOST_CLASSES:,}")
        return
    counts = confusion.matrix()
    names = [figure_name(class_names, index) for index in range(confusion.num_classes)]
    if has_background:
        names.append("background")
    else:
        counts = counts[:-1, :-1]
    parts = counts / np.maximum(counts.sum(axis=0), 1)
    side = min(CELL * len(names), MOST)
    figure = empty_figure(side, side)
    figure.set_layout_engine("none")  # leaves no room for text around square axes
    axes = figure.add_axes((0, 0, 1, 1))
    _draw_cells(axes, parts, names)
    title = "Confusion"
    if has_background:
        title += f" at confidence {CONFIDENCE_ABOVE:g}, IoU {IOU_ABOVE:g}"
        axes.axhline(len(names) - 1.5, color=GREY, linewidth=0.8)
        axes.axvline(len(names) - 1.5, color=GREY, linewidth=0.8)
    axes.set_title(f"{title}\neach column sums to 1", fontsize=11)
    if confusion.num_classes <= MAX_NUMBERED:
        _write_numbers(axes, parts)
    save_figure(figure, path, bbox_inches="tight", pad_inches=0.3)


def _draw_cells(axes: Axes, parts: np.ndarray, names: Sequence[str]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("parts", ["#FFFFFF", COLOURS[0]])
    axes.imshow(parts, cmap=colours, vmin=0, vmax=1)
    if len(names) <= MAX_CLASSES + 1:
        size = min(9.0, 0.8 * 72 * MOST / len(names))  # font size in points
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
        axes.set_yticks(range(len(names)), names, fontsize=size)
        set_fonts([*axes.get_xticklabels(), *axes.get_yticklabels()])
    axes.tick_params(length=0)
    axes.spines[:].set_color(GREY)
    axes.set(xlabel="true class", ylabel="predicted class")


def _write_numbers(axes: Axes, parts: np.ndarray) -> None:
    for row, column in np.argwhere(parts >= LEAST_NUMBER).tolist():
        part = parts[row, column]
        colour = "#FFFFFF" if part > DARK else INK
        axes.text(column, row, f"{part:.2f}", ha="center", va="center", color=colour, fontsize=8)
