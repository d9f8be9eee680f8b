"""The learning rates that a run will use.

Before: `models/training/schedule.py`, batch by batch. After: LR.png.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from utils.drawing.colours import COLOURS
from utils.report.plots.style import new_figure, save_figure


def plot_learning_rates(epochs: np.ndarray, rates: Mapping[str, np.ndarray], path: Path) -> None:
    """Draw the learning rate of each group of weights, a panel each.

    Args:
        epochs: (N,) places in the run, 1.5 in the middle of the second epoch.
        rates: by title of the group, (N,).
    """
    figure, panels = new_figure(1, len(rates), width=5 * len(rates), height=3.75)
    for axes, colour, (title, values) in zip(
        np.ravel(panels), COLOURS, rates.items(), strict=False
    ):
        axes.plot(epochs, values, color=colour)
        axes.set(title=title, xlabel="epoch", ylim=(0, 1.05 * max(values.max(), 1e-12)))
        axes.set_xlim(0, max(float(epochs[-1]), 1.0))
    save_figure(figure, path)
