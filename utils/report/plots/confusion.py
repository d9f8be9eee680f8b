"""The confusion matrix: as which class the objects of each class are detected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backend.words import count
from utils.drawing.colours import COLOURS
from utils.evaluation.coco.confusion import CONFIDENCE_ABOVE, IOU_ABOVE, Confusion
from utils.report.plots.style import (
    GREY,
    INK,
    empty_figure,
    figure_name,
    save_figure,
    set_fonts,
)

MAX_CLASSES = 100  # with a row of their own
MAX_NUMBERED = 30  # classes with numbers in their cells
LEAST_NUMBER = 0.005  # a smaller part would be written as 0.00
DARK = 0.55  # from here on a cell's number is white

CELL, MOST = 0.44, 11.5  # inches: of a cell, and of all cells at most


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
    save_figure(figure, path, with_all_text=True)


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
