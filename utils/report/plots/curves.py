"""Precision over recall, and precision, recall and F1 over confidence, of every class."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backend.words import count
from utils.evaluation.coco.by_confidence import CONFIDENCE_GRID, ByConfidence
from utils.evaluation.coco.metric import MetricResult
from utils.evaluation.coco.precision import RECALL_GRID
from utils.report.plots.style import (
    INK,
    figure_name,
    line_colour,
    named_classes,
    new_figure,
    save_figure,
    set_fonts,
)

FAINT, THIN = "#D4D4D4", 0.6


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
