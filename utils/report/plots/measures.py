"""What a validation found: curves of precision and recall, and the confusion of classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from utils.colours import COLOURS
from utils.evaluation.coco.by_confidence import CONFIDENCE_GRID, ByConfidence
from utils.evaluation.coco.confusion import CONFIDENCE_ABOVE, IOU_ABOVE, Confusion
from utils.evaluation.coco.metric import MetricResult
from utils.evaluation.coco.precision import RECALL_GRID
from utils.report.plots.style import (
    GREY,
    INK,
    empty_figure,
    figure_name,
    line_colour,
    named_classes,
    new_figure,
    save_figure,
    set_fonts,
)
from utils.text import count

FAINT, THIN = "#D4D4D4", 0.6
MAX_CLASSES = 100  # with a row of their own
MAX_NUMBERED = 30  # classes with numbers in their cells
LEAST_NUMBER = 0.005  # a smaller part would be written as 0.00
DARK = 0.55  # from here on a cell's number is white
CELL, MOST = 0.44, 11.5  # inches: of a cell, and of all cells at most


class Curves(NamedTuple):
    """What a figure of curves shows."""

    x: np.ndarray  # (N,)
    y: np.ndarray  # (C, N), NaN for classes without ground truth
    figures: np.ndarray  # (C,) one a class, for the legend
    mean: float  # of the figures
    figure_title: str


def plot_precision_recall(result: MetricResult, path: Path) -> None:
    """Draw precision over recall at IoU 0.50, per class and as the mean of the classes.

    Of more than seven classes those with the most labels have a name, the others are grey.
    """
    curves = Curves(RECALL_GRID, result.precision_curves[:, 0], result.ap50, result.map50, "AP50")
    figure, axes = _draw(result, curves)
    axes.set(title="Precision over recall at IoU 0.50", xlabel="recall", ylabel="precision")
    save_figure(figure, path)


def plot_over_confidence(result: MetricResult, folder: Path, of: str = "") -> None:
    """Draw precision, recall and F1 over the confidence, each into a file of the folder.

    A line marks the confidence with the highest mean F1, where the legend's figures are.

    of: what the names of the files begin with.
    """
    both = result.precision + result.recall
    f1 = np.divide(2 * result.precision * result.recall, both, out=0 * both, where=both > 0)
    shown = result.num_ground_truth > 0
    figures: dict[str, tuple[Callable[[ByConfidence], np.ndarray], np.ndarray]] = {
        "Precision": (lambda by: by.precision, result.precision),
        "Recall": (lambda by: by.recall, result.recall),
        "F1": (lambda by: by.f1, f1),
    }
    for name, (curve, at_best) in figures.items():
        mean = float(at_best[shown].mean()) if shown.any() else 0.0
        title = f"{name} at {result.confidence:.3f}"
        curves = Curves(CONFIDENCE_GRID, curve(result.by_confidence), at_best, mean, title)
        figure, axes = _draw(result, curves)
        if shown.any():
            axes.axvline(result.confidence, color=INK, linewidth=0.8, linestyle=":")
        axes.set(title=f"{name} over confidence, at IoU 0.50", xlabel="confidence")
        axes.set_ylabel(name if name == "F1" else name.lower())
        save_figure(figure, folder / f"{of}{name[0] if name != 'F1' else name}_curve.png")


def _draw(result: MetricResult, curves: Curves) -> tuple[Any, Any]:
    """Return a figure with its axes: a curve per class, their mean, and a legend beside them."""
    from matplotlib.collections import LineCollection

    evaluated = np.flatnonzero(result.num_ground_truth)
    named = named_classes(result.num_ground_truth)
    others = [index for index in evaluated.tolist() if index not in named]
    figure, axes = new_figure(1, 1, width=8.5, height=6)
    lines = [np.stack((curves.x, curves.y[index]), axis=1) for index in others]
    axes.add_collection(LineCollection(lines, colors=FAINT, linewidths=THIN))
    for index in named:
        label = f"{curves.figures[index]:.3f}  {figure_name(result.class_names, index)}"
        axes.plot(curves.x, curves.y[index], color=line_colour(index), linewidth=1.6, label=label)
    if others:
        axes.plot([], [], color=FAINT, label=count(len(others), "other class", "other classes"))
    if len(evaluated):
        label = f"{curves.mean:.3f}  mean of {count(len(evaluated), 'class', 'classes')}"
        axes.plot(curves.x, _mean(curves.y[evaluated]), color=INK, linewidth=3, label=label)
        legend = figure.legend(
            title=curves.figure_title, frameon=False, loc="outside right upper", alignment="left"
        )
        set_fonts(legend.get_texts())
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure, axes


def _mean(curves: np.ndarray) -> np.ndarray:
    """Return the mean of (K, N) over the classes that have a figure there; NaN where none has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a column of NaN
        return np.nanmean(curves, axis=0)


def plot_confusion(
    confusion: Confusion, class_names: Sequence[str], path: Path, has_background: bool = True
) -> None:
    """Draw the fraction of the objects of each true class (column) found as each class (row).

    The last row is what is missed; the last column is what is found where nothing is labelled.
    Each column adds up to 1. Of more than 100 classes those with the most objects are shown, and
    all others are one row and column.

    Args:
        has_background: an object may be missed, or found where there is none.
    """
    shown = _shown_classes(confusion)
    counts = confusion.matrix(shown)
    if not has_background:
        counts = counts[:-1, :-1]
    names = [figure_name(class_names, index) for index in shown]
    if len(shown) < confusion.num_classes:
        names.append(count(confusion.num_classes - len(shown), "other"))
    if has_background:
        names.append("background")
    parts = counts / np.maximum(counts.sum(axis=0), 1)
    side = min(CELL * len(names), MOST)
    figure = empty_figure(side, side)
    figure.set_layout_engine("none")  # it leaves square axes no room for the text around them
    axes = figure.add_axes((0, 0, 1, 1))
    _draw_cells(axes, parts, names)
    title = "Confusion"
    if has_background:
        title += f" at confidence {CONFIDENCE_ABOVE:g}, IoU {IOU_ABOVE:g}"
        axes.axhline(len(names) - 1.5, color=GREY, linewidth=0.8)
        axes.axvline(len(names) - 1.5, color=GREY, linewidth=0.8)
    axes.set_title(f"{title}\neach column adds up to 1", fontsize=11)
    if len(shown) <= MAX_NUMBERED:
        _write_numbers(axes, parts)
    save_figure(figure, path, bbox_inches="tight", pad_inches=0.3)


def _shown_classes(confusion: Confusion) -> list[int]:
    """Return the classes with a row of their own, in order."""
    is_object = confusion.true < confusion.num_classes
    objects = np.zeros(confusion.num_classes, np.int64)
    np.add.at(objects, confusion.true[is_object], confusion.counts[is_object])
    return sorted(np.argsort(-objects, kind="stable")[:MAX_CLASSES].tolist())


def _letter_size(names: Sequence[str]) -> float:
    """Return the size of the letters at the cells, points."""
    return min(9.0, 0.8 * 72 * MOST / len(names))


def _draw_cells(axes: Any, parts: np.ndarray, names: Sequence[str]) -> None:
    """Draw the fractions (N, N) as colours, with names at the left and below."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("parts", ["#FFFFFF", COLOURS[0]])
    axes.imshow(parts, cmap=colours, vmin=0, vmax=1)
    size = _letter_size(names)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    set_fonts([*axes.get_xticklabels(), *axes.get_yticklabels()])
    axes.tick_params(length=0)
    axes.spines[:].set_color(GREY)
    axes.set(xlabel="true class", ylabel="predicted class")


def _write_numbers(axes: Any, parts: np.ndarray) -> None:
    """Write each fraction that is not zero into its cell."""
    for row, column in np.argwhere(parts >= LEAST_NUMBER).tolist():
        part = parts[row, column]
        colour = "#FFFFFF" if part > DARK else INK
        axes.text(column, row, f"{part:.2f}", ha="center", va="center", color=colour, fontsize=8)
