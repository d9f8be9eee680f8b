"""Statistics of labels: classes, places and sizes of boxes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from duet.utils.colours import COLOURS
from duet.utils.data.sources.class_folders import fill_images
from duet.utils.data.sources.samples import Sample, SampleTable, table_of
from duet.utils.geometry.boxes import corners_of, cxcywh_to_xyxy
from duet.utils.report.plots.style import (
    Axes,
    colour_of,
    figure_name,
    new_figure,
    save_figure,
    set_fonts,
    whole_numbers,
)
from duet.utils.text import count

MAX_BARS = 30
MAX_OUTLINES = 1000
BINS = 50  # per side of a histogram


def plot_labels(samples: Sequence[Sample], class_names: Sequence[str], path: Path) -> None:
    """Plot class frequencies, box shapes, positions and sizes; image sizes for classification."""
    table = table_of(samples)
    if fill_images(table):
        return _plot_classes(table, class_names, path)
    class_index, boxes_cxcywh_norm = table.class_index, table.boxes_cxcywh_norm
    figure, ((counts, outlines), (centres, sizes)) = new_figure(2, 2, width=12, height=10)
    _draw_class_counts(counts, class_index, class_names)
    _draw_outlines(outlines, class_index, boxes_cxcywh_norm)
    for axes, first, title, names in (
        (centres, 0, "Box centres", ("x / image width", "y / image height")),
        (sizes, 2, "Box sizes", ("width / image width", "height / image height")),
    ):
        mesh = _draw_density(axes, *boxes_cxcywh_norm.T[first : first + 2])
        figure.colorbar(mesh, ax=axes, label="boxes", shrink=0.85, ticks=whole_numbers())
        axes.set(title=title, xlabel=names[0], ylabel=names[1])
    centres.invert_yaxis()  # top of the image at the top
    save_figure(figure, path)


def _plot_classes(table: SampleTable, class_names: Sequence[str], path: Path) -> None:
    figure, (counts, sizes) = new_figure(1, 2, width=12, height=5)
    _draw_class_counts(counts, table.class_index, class_names)
    height, width = table.sizes.T
    sizes.scatter(width, height, s=6, alpha=0.3, color=COLOURS[0], linewidths=0)
    longest = 1.05 * table.sizes.max()
    sizes.set(xlim=(0, longest), ylim=(0, longest), aspect="equal")
    sizes.set(title="Image sizes", xlabel="width, pixels", ylabel="height, pixels")
    save_figure(figure, path)


def _draw_class_counts(axes: Axes, class_index: np.ndarray, class_names: Sequence[str]) -> None:
    """Draw a bar per class, most frequent on top, for at most 30 classes."""
    counts = np.bincount(class_index, minlength=len(class_names))
    shown = np.argsort(-counts, kind="stable")[:MAX_BARS]
    positions = np.arange(len(shown))
    colours = [colour_of(index) for index in shown.tolist()]
    bars = axes.barh(positions, counts[shown], height=0.7, color=colours)
    axes.bar_label(bars, padding=3, fontsize=8)
    axes.set_yticks(positions, [figure_name(class_names, index) for index in shown], fontsize=8)
    set_fonts(axes.get_yticklabels())
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(False)
    axes.margins(x=0.12)
    first = "" if len(shown) == len(counts) else f", the {len(shown)} most frequent"
    of = count(len(counts), "class", "classes")
    axes.set(title=f"{count(len(class_index), 'label')} of {of}{first}", xlabel="labels")
    axes.xaxis.set_major_locator(whole_numbers())


def _draw_outlines(axes: Axes, class_index: np.ndarray, boxes_cxcywh_norm: np.ndarray) -> None:
    """Draw boxes on top of each other, all centred."""
    from matplotlib.collections import PolyCollection

    rows = np.arange(0, len(class_index), max(-(-len(class_index) // MAX_OUTLINES), 1))
    boxes = boxes_cxcywh_norm[rows].copy()
    boxes[:, :2] = 0.5
    corners = corners_of(cxcywh_to_xyxy(boxes))
    colours = [colour_of(index) for index in class_index[rows].tolist()]
    outlines = PolyCollection(list(corners), facecolors="none", edgecolors=colours, linewidths=0.6)
    outlines.set_alpha(0.6)
    axes.add_collection(outlines)
    axes.set(xlim=(0, 1), ylim=(1, 0), aspect="equal", xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(True)
    number = "" if len(rows) == len(class_index) else f"{len(rows):,} of "
    boxes_in_words = count(len(class_index), "box", "boxes")
    axes.set(title=f"Box shapes, {number}{boxes_in_words}", xlabel="centred in the image")


def _draw_density(axes: Axes, x: np.ndarray, y: np.ndarray) -> Any:
    """Draw a 2-d histogram of points (M,) and (M,) in [0, 1], darkest for the highest counts."""
    from matplotlib.colors import PowerNorm

    counts, *_ = np.histogram2d(y, x, BINS, ((0, 1), (0, 1)))
    return axes.imshow(
        np.ma.masked_equal(counts, 0),
        origin="lower",
        extent=(0, 1, 0, 1),
        cmap="viridis_r",
        norm=PowerNorm(0.5, vmin=0, vmax=max(counts.max(), 1)),
    )
