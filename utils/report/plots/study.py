"""Figures and times of models at several image sizes: a table, and a plot of one by the other."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utils.files.atomic import atomic_text_file
from utils.report.plots.style import figure_text, new_figure, save_figure, set_fonts

FIRST_SIZE, LAST_SIZE, STEP = 256, 1536, 128  # the public study's


@dataclass(frozen=True)
class StudyRow:
    """A model at one size."""

    weights: str
    image_size: int
    figures: Mapping[str, float]  # by name, the one that the plot shows last
    milliseconds: float  # an image: loading, network and NMS

    def line(self) -> str:
        """Return the row as a line of text."""
        figures = "  ".join(f"{name} {value:.4f}" for name, value in self.figures.items())
        size = f"{self.weights}  {self.image_size} px"
        return f"{size}  {figures}  {self.milliseconds:.1f} ms per image"


def study_sizes(stride: int) -> list[int]:
    """Return the image sizes of a study, rounded up to a model's stride."""
    sizes = range(FIRST_SIZE, LAST_SIZE + 1, STEP)
    return sorted({-(-size // stride) * stride for size in sizes})


def write_study(rows: Sequence[StudyRow], folder: Path) -> None:
    """Write study.csv into a folder."""
    names = list(rows[0].figures)
    with atomic_text_file(folder / "study.csv") as file:
        table = csv.writer(file)
        table.writerow(["weights", "image_size", *names, "ms_per_image"])
        for row in rows:
            figures = [f"{row.figures[name]:.6g}" for name in names]
            table.writerow([row.weights, row.image_size, *figures, f"{row.milliseconds:.6g}"])


def plot_study(rows: Sequence[StudyRow], folder: Path) -> None:
    """Draw the last figure by milliseconds per image into study.png, a line for each weights."""
    figure_name = list(rows[0].figures)[-1]
    figure, axes = new_figure(1, 1, 7, 4.5)
    for number, weights in enumerate(dict.fromkeys(row.weights for row in rows), 1):
        own = [row for row in rows if row.weights == weights]
        times = [row.milliseconds for row in own]
        values = [row.figures[figure_name] for row in own]
        label = figure_text(Path(weights).name, f"weights {number}")
        axes.plot(times, values, marker="o", label=label)
        for row, x, y in zip(own, times, values, strict=True):
            axes.annotate(str(row.image_size), (x, y), (4, -10), textcoords="offset points")
    axes.set(xlabel="ms per image", ylabel=figure_name, ylim=(0, None), xlim=(0, None))
    set_fonts(axes.legend(loc="lower right").get_texts())
    save_figure(figure, folder / "study.png")
