"""Plots of a run: batches, labels, training curves and precision over recall.

Before: the loader's batches and samples, results.csv, `evaluation/coco/metric.py`. Drawing imports
matplotlib or OpenCV where it needs them, and leaves their global state alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backend.words import count
from utils.boxes import cxcywh_to_xyxy
from utils.data.loading.batch import Targets
from utils.data.sources.labels import Sample
from utils.drawing.annotate import draw_boxes
from utils.drawing.colours import COLOURS, class_colour
from utils.drawing.fonts import drawable_name, system_fonts
from utils.errors import UserError
from utils.evaluation.coco.metric import EvaluationResult
from utils.evaluation.coco.precision import RECALL_GRID
from utils.files.atomic import atomic_file
from utils.report.results import read_results
from utils.screen.text import printable

GREY, INK = "#C8C8C8", "#303030"

MAX_TILES = 16
MAX_MOSAIC_SIDE = 1920
BATCH_LINE_WIDTH = 2  # pixels; JPEG takes the colour from thinner lines
MAX_NAMED_CURVES = len(COLOURS)
MAX_BARS = 30
# What the font of a name needs too: figures stand beside it, and by "lp" matplotlib measures lines.
BESIDE_NAMES = "0123456789. lp"

RATES = ("lr0", "lr1", "lr2")
PANELS_A_ROW = 3


def plot_batch(
    images: np.ndarray, targets: Targets, class_names: Sequence[str], path: Path
) -> None:
    """Write a JPEG of the first 16 images of a batch with their boxes, in a square of tiles.

    Args:
        images: (B, 3, H, W) uint8 RGB.
        targets: boxes of the batch; those of images not shown are left out.
        class_names: of every class.
        path: file to write.
    """
    import cv2

    num_tiles = min(len(images), MAX_TILES)
    columns = math.ceil(math.sqrt(num_tiles))
    rows = math.ceil(num_tiles / columns)
    height, width = images.shape[2:]
    scale = min(1.0, MAX_MOSAIC_SIDE / max(rows * height, columns * width))
    height, width = round(height * scale), round(width * scale)
    mosaic = np.full((rows * height, columns * width, 3), 255, np.uint8)
    for index in range(num_tiles):
        image = np.ascontiguousarray(images[index].transpose(1, 2, 0))
        tile = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        mine = targets.image_index == index
        top, left = index // columns * height, index % columns * width
        mosaic[top : top + height, left : left + width] = _with_targets(
            tile, targets.boxes_cxcywh_norm[mine], targets.class_index[mine], class_names
        )
    mosaic[height::height] = mosaic[:, width::width] = 255
    mosaic = cv2.cvtColor(mosaic, cv2.COLOR_RGB2BGR)
    _, encoded = cv2.imencode(".jpg", mosaic, (cv2.IMWRITE_JPEG_QUALITY, 90))
    with atomic_file(path) as file:
        file.write(encoded.tobytes())


def plot_labels(samples: Sequence[Sample], class_names: Sequence[str], path: Path) -> None:
    """Draw a plot of how often each class occurs, where boxes lie and how large they are."""
    class_index = np.concatenate([sample.class_index for sample in samples])
    boxes_cxcywh_norm = np.concatenate([sample.boxes_cxcywh_norm for sample in samples])
    figure, (counts, centres, sizes) = _new_figure(1, 3, width=16, height=5)
    _draw_class_counts(counts, class_index, class_names)
    for axes, offset, title, names in (
        (centres, 0, "Box centres", ("x / image width", "y / image height")),
        (sizes, 2, "Box sizes", ("width / image width", "height / image height")),
    ):
        _draw_density(figure, axes, boxes_cxcywh_norm[:, offset : offset + 2])
        axes.set(title=title, xlabel=names[0], ylabel=names[1])
    centres.invert_yaxis()  # as in the image, the top is above
    _save(figure, path)


def plot_results(csv_path: Path, plot_path: Path) -> None:
    """Draw a plot of the losses, metrics and learning rates of results.csv over the epochs.

    Raises:
        UserError: the file has no epochs, or lacks a column that every run has.
    """
    from matplotlib.ticker import MaxNLocator

    panels, results = _read_columns(csv_path)
    num_rows = -(-len(panels) // PANELS_A_ROW)
    figure, places = _new_figure(num_rows, PANELS_A_ROW, width=14, height=3.75 * num_rows)
    for axes in places.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, lines) in zip(places.flat, panels.items(), strict=False):
        for colour, (label, column) in zip(COLOURS, lines.items(), strict=False):
            axes.plot(
                results["epoch"],
                results[column],
                color=colour,
                label=label,
                marker="o" if len(results["epoch"]) < 20 else None,
                markersize=4,
            )
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False)
    _save(figure, plot_path)


def plot_precision_recall(result: EvaluationResult, path: Path) -> None:
    """Draw a plot of precision over recall at IoU 0.50, per class and as the mean of the classes.

    With more than seven classes the curves of single classes are grey and without a name.
    """
    curves, ap50 = result.precision_curves[:, 0], result.ap50
    evaluated = np.flatnonzero(result.num_ground_truth)
    named = len(evaluated) <= MAX_NAMED_CURVES
    figure, axes = _new_figure(1, 1, width=8.5, height=6)
    for number, index in enumerate(evaluated):
        label = f"{ap50[index]:.3f}  {_figure_name(result.class_names, index)}"
        axes.plot(
            RECALL_GRID,
            curves[index],
            color=COLOURS[number] if named else GREY,
            linewidth=1.6 if named else 0.7,
            label=label if named else None,
        )
    if len(evaluated):
        mean_label = f"{result.map50:.3f}  mean of {count(len(evaluated), 'class', 'classes')}"
        axes.plot(
            RECALL_GRID, curves[evaluated].mean(axis=0), color=INK, linewidth=3, label=mean_label
        )
        legend = figure.legend(title="AP50", frameon=False, loc="outside right upper")
        _set_fonts(legend.get_texts())
    axes.set(title="Precision over recall at IoU 0.50", xlabel="recall", ylabel="precision")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    _save(figure, path)


def _with_targets(
    tile: np.ndarray,
    boxes_cxcywh_norm: np.ndarray,
    class_index: np.ndarray,
    class_names: Sequence[str],
) -> np.ndarray:
    """Return a tile (H, W, 3) with its boxes (K, 4), and names, of the largest ones first."""
    order = np.argsort(-boxes_cxcywh_norm[:, 2:].prod(axis=1), kind="stable")
    height, width = tile.shape[:2]
    boxes_xyxy = cxcywh_to_xyxy(boxes_cxcywh_norm[order]) * (width, height, width, height)
    names = [drawable_name(class_names[index], index) for index in class_index[order].tolist()]
    return draw_boxes(tile, boxes_xyxy, class_index[order], names, BATCH_LINE_WIDTH)


def _draw_class_counts(axes: Any, class_index: np.ndarray, class_names: Sequence[str]) -> None:
    """Draw a bar per class, the most frequent on top; of more than 30 classes the first 30."""
    counts = np.bincount(class_index, minlength=len(class_names))
    shown = np.argsort(-counts, kind="stable")[:MAX_BARS]
    positions = np.arange(len(shown))
    colours = [np.divide(class_colour(index), 255) for index in shown.tolist()]
    bars = axes.barh(positions, counts[shown], height=0.7, color=colours)
    axes.bar_label(bars, padding=3, fontsize=8)
    axes.set_yticks(positions, [_figure_name(class_names, index) for index in shown], fontsize=8)
    _set_fonts(axes.get_yticklabels())
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(False)
    axes.margins(x=0.12)
    first = "" if len(shown) == len(counts) else f", the {len(shown)} most frequent"
    of = count(len(counts), "class", "classes")
    axes.set(title=f"{count(len(class_index), 'label')} of {of}{first}", xlabel="labels")


def _draw_density(figure: Any, axes: Any, points: np.ndarray) -> None:
    """Draw points (M, 2) in [0, 1] counted in squares, dark where there are most."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    edges = np.linspace(0, 1, 51)
    counts, _, _ = np.histogram2d(points[:, 0], points[:, 1], bins=[edges, edges])
    mesh = axes.imshow(
        np.ma.masked_equal(counts.T, 0),
        origin="lower",
        extent=(0, 1, 0, 1),
        cmap="viridis_r",
        norm=PowerNorm(0.5, vmin=0, vmax=max(counts.max(), 1)),
    )
    ticks = MaxNLocator(integer=True)
    figure.colorbar(mesh, ax=axes, label="boxes", shrink=0.85, ticks=ticks)


def _result_panels(columns: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return what is drawn of a results.csv: by title, the columns by label.

    A panel for each loss, of training and validation; figures two a panel; one of learning rates.
    """
    parts = [name.partition("/") for name in columns]
    losses = dict.fromkeys(name for group, _, name in parts if group in ("train", "val"))
    figures = [name for group, _, name in parts if group == "metrics"]
    pairs = [figures[start : start + 2] for start in range(0, len(figures), 2)]
    panels = {}
    for name in losses:
        title = _as_title(name.replace("_", " "))
        panels[title] = {"training": f"train/{name}", "validation": f"val/{name}"}
    for pair in pairs:
        panels[_as_title(" and ".join(pair))] = {name: f"metrics/{name}" for name in pair}
    return {**panels, "Learning rate": {name: f"x/{name}" for name in RATES}}


def _as_title(name: str) -> str:
    """Begin a name with a capital, but for one that has capitals of its own."""
    return name.capitalize() if name.islower() else name


def _read_columns(csv_path: Path) -> tuple[dict[str, dict[str, str]], dict[str, np.ndarray]]:
    """Return the panels of results.csv, and their columns by name with the epochs'."""
    names, rows = read_results(csv_path)
    panels = _result_panels(names)
    wanted = ["epoch", *(column for lines in panels.values() for column in lines.values())]
    missing = [name for name in wanted if name not in names]
    if missing or not rows:
        what = f"no column {', '.join(missing):.300}" if missing else "no epochs"
        raise UserError(f"{csv_path} has {what}; it should be the results.csv of a training run")
    return panels, {name: np.array([row[name] for row in rows]) for name in wanted}


def _new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    """Return a figure of width x height inches and its axes, styled alike throughout."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    panels = figure.subplots(rows, columns)
    for axes in np.ravel(panels):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E4E4E4", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, panels


def _save(figure: Any, path: Path) -> None:
    """Write a figure in the format that its file's name says."""
    with atomic_file(path) as file:
        figure.savefig(file, format=path.suffix[1:])


def _figure_name(class_names: Sequence[str], index: int) -> str:
    """Return a name that matplotlib can draw in one font, or its number.

    It would read dollar signs as the bounds of a formula.
    """
    name = printable(drawable_name(class_names[index], index))
    text = name if system_fonts().font_for(name + BESIDE_NAMES) else f"class {index}"
    return text.replace("$", r"\$")


def _set_fonts(texts: Iterable[Any]) -> None:
    """Give texts of a figure fonts that have their characters; matplotlib's first one has few."""
    from matplotlib.font_manager import FontProperties

    for text in texts:
        font = system_fonts().font_for(text.get_text() + BESIDE_NAMES)
        if font and font.path:
            text.set_fontproperties(FontProperties(fname=font.path, size=text.get_fontsize()))
