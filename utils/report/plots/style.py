"""One style for all figures: sizes, colours, names of classes in any script.

Light ground, thin grid, few colours: a class has in every figure the colour that its boxes have on
images.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from duet.utils.atomic_files import atomic_file
from duet.utils.colours import COLOURS, class_colour
from duet.utils.report.drawing.fonts import drawable_name, font_for

GREY, INK, GRID = "#C8C8C8", "#303030", "#E4E4E4"
DOTS_PER_INCH = 110
MAX_BRIGHTNESS = 0.43  # of a line, where white has 1

MAX_NAMED = len(COLOURS)  # classes that a figure of curves names, in colours that are told apart
MAX_NAME_WIDTH = 24  # letters; an ideograph is as wide as two
# What the font of a name needs too: figures stand beside it, and by "lp" matplotlib measures lines.
BESIDE_NAMES = "0123456789. lp"


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    """Return a figure of width x height inches and its axes, styled alike throughout."""
    figure = empty_figure(width, height)
    panels = figure.subplots(rows, columns)
    for axes in np.ravel(panels):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, panels


def panel_grid(number: int, a_row: int, width: float, height: float) -> tuple[Any, np.ndarray]:
    """Return a figure of so many panels of width x height inches each, and their axes."""
    rows, columns = -(-number // a_row), min(number, a_row)
    figure, panels = new_figure(rows, columns, width * columns, height * rows)
    places = np.ravel(panels)
    for axes in places[number:]:
        axes.set_visible(False)
    return figure, places[:number]


def empty_figure(width: float, height: float) -> Any:
    """Return a figure of width x height inches without axes."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")


def whole_numbers() -> Any:
    """Return a locator that puts an axis's ticks at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True)


def save_figure(figure: Any, path: Path, **options: Any) -> None:
    """Write a figure in the format that its file's name says, with options of `print_figure`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with atomic_file(path) as file:
        FigureCanvasAgg(figure).print_figure(
            file, format=path.suffix[1:], pil_kwargs={"quality": 95}, **options
        )


def line_colour(class_index: int) -> tuple[float, ...]:
    """Return the colour of a class for a line on white: a pale one is made darker."""
    colour = np.array(colour_of(class_index))
    linear = colour**2.2
    brightness = float(linear @ (0.2126, 0.7152, 0.0722))  # of sRGB, with its gamma about 2.2
    return tuple(np.minimum(1.0, MAX_BRIGHTNESS / brightness) ** (1 / 2.2) * colour)


def colour_of(class_index: int) -> tuple[float, ...]:
    """Return the colour of a class as matplotlib takes it."""
    return tuple(level / 255 for level in class_colour(class_index))


def named_classes(num_labels: np.ndarray) -> list[int]:
    """Return the classes that a figure of curves names: those with the most labels, in order.

    num_labels: (C,) of every class; those without any are never named.
    """
    most = np.argsort(-num_labels, kind="stable")[:MAX_NAMED]
    return sorted(most[num_labels[most] > 0].tolist())


def figure_name(class_names: Sequence[str], index: int) -> str:
    r"""Return the name of a class, or its number, for matplotlib: a $ would begin a formula."""
    return cut(drawable_name(class_names[index], index)).replace("$", r"\$")


def cut(name: str) -> str:
    """Return a name of at most 24 letters' width; a longer one ends in ".."."""
    if width_of(name) <= MAX_NAME_WIDTH:
        return name
    widths = np.cumsum([width_of(letter) for letter in name])
    return name[: np.searchsorted(widths, MAX_NAME_WIDTH - 2, side="right")] + ".."


def width_of(text: str) -> int:
    """Return how wide a text is, in letters; an ideograph counts as two."""
    spacing = [letter for letter in text if not unicodedata.combining(letter)]
    return len(spacing) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in spacing)


def set_fonts(texts: Iterable[Any]) -> None:
    """Give texts of a figure fonts that have their characters; matplotlib's first one has few."""
    from matplotlib.font_manager import FontProperties

    for text in texts:
        if font := font_for(text.get_text() + BESIDE_NAMES):
            text.set_fontproperties(FontProperties(fname=font, size=text.get_fontsize()))
