"""What a search over hyper-parameters has tried: value against fitness, a panel each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from utils.drawing.colours import COLOURS
from utils.report.plots.style import GREY, INK, new_figure, save_figure

PANELS_A_ROW = 6
LARGEST_RATIO = 30  # of the largest to the smallest value, on an axis that is not logarithmic


def plot_evolution(
    values: Mapping[str, Sequence[float]], fitness: Sequence[float], path: Path
) -> None:
    """Draw the trials of a search; the first and the best one stand out.

    Args:
        values: (N,) of each hyper-parameter, by name; N from 1 up.
        fitness: (N,) of the same trials.
    """
    best = int(np.argmax(fitness))
    rows = math.ceil(len(values) / PANELS_A_ROW)
    columns = min(len(values), PANELS_A_ROW)
    figure, panels = new_figure(rows, columns, width=2.6 * columns, height=2.3 * rows)
    places = np.ravel(panels)
    for axes in places[len(values) :]:
        axes.set_visible(False)
    for axes, (name, tried) in zip(places, values.items(), strict=False):
        axes.scatter(tried, fitness, s=14, color=GREY)
        axes.scatter(tried[:1], fitness[:1], s=40, facecolors="none", edgecolors=INK)
        axes.scatter(tried[best], fitness[best], s=40, color=COLOURS[0])
        axes.set_title(f"{name} {tried[best]:.3g}", fontsize=9)
        axes.tick_params(labelsize=7)
        if min(tried) > 0 and max(tried) / min(tried) > LARGEST_RATIO:
            axes.set_xscale("log")
            axes.minorticks_off()
        else:
            axes.locator_params(axis="x", nbins=3)  # each tick costs time
        axes.locator_params(axis="y", nbins=4)
    figure.supxlabel("value; ring: to begin with, filled: the best", fontsize=9)
    figure.supylabel("fitness", fontsize=9)
    save_figure(figure, path)
