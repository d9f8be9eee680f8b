"""Plots of results.csv over epochs, and of the trials of a search."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from duet.utils.colours import COLOURS
from duet.utils.report.plots.style import (
    GREY,
    INK,
    Axes,
    panel_grid,
    save_figure,
    whole_numbers,
)
from duet.utils.report.results import Results

RATES = ("lr0", "lr1", "lr2")
PANELS_A_ROW = 3
LINES = "-", "-", "--"  # lr2 is often equal to lr1
# A panel's axis ends at most four times as far up as the 90 % quantile of its values.
USUAL_PART, FAR = 0.9, 4.0
TRIAL_PANELS_A_ROW = 6
LARGEST_RATIO = 30  # largest to smallest value, above which an axis is logarithmic


def plot_results(results: Results, path: Path) -> None:
    """Plot the losses, metrics and learning rates of results.csv over the epochs, from 1.

    Loss panels cut off the few values far above all others, marked by triangles.
    """
    table = np.array([[float(cell or "nan") for cell in cells] for cells in results.rows]).T
    columns = dict(zip(results.columns, table, strict=True))
    panels = _result_panels(results.columns)
    figure, places = panel_grid(len(panels), PANELS_A_ROW, width=14 / 3, height=3.75)
    for axes, (title, lines) in zip(places, panels.items(), strict=True):
        values = {label: columns[name] for label, name in lines.items() if name in columns}
        has_metrics = any(name.startswith("metrics/") for name in lines.values())
        _draw_panel(axes, columns["epoch"] + 1, values, has_limit=not has_metrics)
        axes.set(title=title, xlabel="epoch")
    save_figure(figure, path)


def _draw_panel(
    axes: Axes, epochs: np.ndarray, lines: Mapping[str, np.ndarray], has_limit: bool
) -> None:
    """Draw lines by label, one value per epoch; has_limit: cut off values far above others."""
    for colour, style, (label, values) in zip(COLOURS, LINES, lines.items(), strict=False):
        # Markers show isolated values.
        axes.plot(epochs, values, style, color=colour, label=label, marker=".")
    values = np.concatenate(list(lines.values()))
    values = values[np.isfinite(values)]
    if has_limit and len(values):
        lowest, usual = np.quantile(values, (0, USUAL_PART))
        if lowest < (limit := lowest + FAR * (usual - lowest)) < values.max():
            axes.set_ylim(lowest - 0.05 * (limit - lowest), limit)
            for colour, line in zip(COLOURS, lines.values(), strict=False):
                above = epochs[line > limit]
                (marks,) = axes.plot(above, np.full(len(above), limit), "^", color=colour)
                marks.set(clip_on=False, in_layout=False)
    last = epochs.max()
    ticks = [tick for tick in whole_numbers().tick_values(1, last) if 1 < tick <= last]
    axes.set_xticks([1, *ticks])
    axes.set_xlim(left=1 - 0.03 * last)
    axes.legend(frameon=False)


def _result_panels(columns: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return column names by label, by panel: each loss, pairs of metrics, learning rates."""
    parts = [name.partition("/") for name in columns]
    losses = dict.fromkeys(name for group, _, name in parts if group in ("train", "val"))
    metrics = [name for group, _, name in parts if group == "metrics"]
    pairs = [metrics[start : start + 2] for start in range(0, len(metrics), 2)]
    panels = {}
    for name in losses:
        title = _as_title(name.replace("_", " "))
        panels[title] = {"training": f"train/{name}", "validation": f"val/{name}"}
    for pair in pairs:
        labels = [x.replace("mAP_0.5:0.95", "mAP50-95").replace("mAP_0.5", "mAP50") for x in pair]
        lines = {label: f"metrics/{name}" for label, name in zip(labels, pair, strict=True)}
        panels[_as_title(" and ".join(lines))] = lines
    return {**panels, "Learning rate": {name: f"x/{name}" for name in RATES}}


def _as_title(name: str) -> str:
    return name[:1].upper() + name[1:] if name[:2].islower() else name


def plot_evolution(
    values: Mapping[str, Sequence[float]], fitness: Sequence[float], path: Path
) -> None:
    """Plot the N trials of a search by hyper-parameter, highlighting the first and the best."""
    best = int(np.argmax(fitness))
    figure, places = panel_grid(len(values), TRIAL_PANELS_A_ROW, width=2.6, height=2.3)
    for axes, (name, tried) in zip(places, values.items(), strict=True):
        axes.scatter(tried, fitness, s=14, color=GREY)
        axes.scatter(tried[:1], fitness[:1], s=40, facecolors="none", edgecolors=INK)
        axes.scatter(tried[best], fitness[best], s=40, color=COLOURS[0])
        axes.set_title(f"{name} {tried[best]:.3g}", fontsize=9)
        axes.tick_params(labelsize=7)
        if min(tried) > 0 and max(tried) / min(tried) > LARGEST_RATIO:
            axes.set_xscale("log")
            axes.minorticks_off()
        else:
            axes.locator_params(axis="x", nbins=3)  # ticks are slow
        axes.locator_params(axis="y", nbins=4)
    figure.supxlabel("value; ring: initial, filled: best", fontsize=9)
    figure.supylabel("fitness", fontsize=9)
    save_figure(figure, path)
