"""The confusion matrix: as what each class is found.

Before: `evaluation/confusion.py`. After: confusion_matrix.png.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backend.words import count
from utils.drawing.colours import COLOURS
from utils.evaluation.confusion import CONFIDENCE_ABOVE, IOU_ABOVE, Confusion
from utils.report.plots.style import GREY, INK, empty_figure, figure_name, save_figure, set_fonts

MAX_CLASSES = 100  # with a row of their own
MAX_NUMBERED = 30  # classes with numbers in their cells; beyond them the pairs below are listed
MAX_PAIRS = 12
DARK = 0.55  # from here on a cell's number is white

# Inches: of a cell, of all cells, and of what stands beside them.
CELL, LEAST, MOST = 0.44, 2.6, 11.5
BESIDE, LISTED = 2.8, 4.6


def plot_confusion(confusion: Confusion, class_names: Sequence[str], path: Path) -> None:
    """Draw which part of the objects of each true class, a column, is found as each class, a row.

    The last row is what is missed; the last column is what is found where nothing is labelled.
    Each column adds up to 1. Of more than 100 classes those with the most objects are shown, and
    all others are one row and column.
    """
    shown = _shown_classes(confusion)
    counts = confusion.matrix(shown)
    names = [figure_name(class_names, index) for index in shown]
    if len(counts) > len(shown) + 1:
        names.append(count(confusion.num_classes - len(shown), "other"))
    names.append("background")
    with np.errstate(invalid="ignore"):
        parts = counts / counts.sum(axis=0)
    has_numbers = len(shown) <= MAX_NUMBERED
    side = min(max(CELL * len(counts), LEAST), MOST)
    figure = empty_figure(side + BESIDE + (0 if has_numbers else LISTED), side + BESIDE * 0.7)
    if has_numbers:
        axes = figure.subplots()
        _write_numbers(axes, parts)
    else:
        axes, listed = figure.subplots(1, 2, width_ratios=(side + BESIDE, LISTED))
        _list_pairs(listed, counts, names, len(shown))
    _draw_cells(figure, axes, parts, names)
    save_figure(figure, path)


def _shown_classes(confusion: Confusion) -> list[int]:
    """Return the classes with a row of their own, in order."""
    is_object = confusion.true < confusion.num_classes
    objects = np.zeros(confusion.num_classes, np.int64)
    np.add.at(objects, confusion.true[is_object], confusion.counts[is_object])
    return sorted(np.argsort(-objects, kind="stable")[:MAX_CLASSES].tolist())


def _draw_cells(figure: Any, axes: Any, parts: np.ndarray, names: Sequence[str]) -> None:
    """Draw the parts (N, N) as colours, with names at the left and below."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("parts", ["#FFFFFF", COLOURS[0]])
    cells = axes.imshow(np.ma.masked_invalid(parts), cmap=colours, vmin=0, vmax=1)
    size = min(9.0, 0.8 * 72 * MOST / len(names))
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    set_fonts([*axes.get_xticklabels(), *axes.get_yticklabels()])
    axes.tick_params(length=0)
    axes.spines[:].set_color(GREY)
    axes.axhline(len(names) - 1.5, color=GREY, linewidth=0.8)
    axes.axvline(len(names) - 1.5, color=GREY, linewidth=0.8)
    axes.set(xlabel="true class", ylabel="predicted class")
    axes.set_title(
        f"Confusion at confidence {CONFIDENCE_ABOVE:g} and IoU {IOU_ABOVE:g}, in parts of a column"
    )
    figure.colorbar(cells, ax=axes, shrink=0.7, aspect=30, pad=0.02)


def _write_numbers(axes: Any, parts: np.ndarray) -> None:
    """Write each part that is not zero into its cell."""
    for row, column in np.argwhere(parts >= 0.005).tolist():
        part = parts[row, column]
        colour = "#FFFFFF" if part > DARK else INK
        axes.text(column, row, f"{part:.2f}", ha="center", va="center", color=colour, fontsize=8)


def _list_pairs(axes: Any, counts: np.ndarray, names: Sequence[str], num_classes: int) -> None:
    """Write which two classes are most often taken for each other, with their numbers."""
    mistaken = counts[:num_classes, :num_classes].copy()
    np.fill_diagonal(mistaken, 0)
    order = np.argsort(-mistaken, axis=None, kind="stable")[:MAX_PAIRS]
    pairs = [divmod(place, num_classes) for place in order.tolist() if mistaken.flat[place]]
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(MAX_PAIRS * 3, -2))
    axes.text(0, -1, "Most often taken for another" if pairs else "None taken for another")
    texts = []
    for line, (row, column) in enumerate(pairs):
        found, objects = counts[row, column], counts[:, column].sum()
        axes.text(0, line, f"{found} of {objects}", fontsize=9)
        texts.append(axes.text(0.25, line, names[column], fontsize=9))
        texts.append(axes.text(0.65, line, names[row], fontsize=9))
    set_fonts(texts)
