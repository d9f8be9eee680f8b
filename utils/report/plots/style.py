"""The common style of figures: sizes, colours, class names in any script.

Light ground, thin grid, few colours; classes have the same colour in all figures and as boxes.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from duet.utils.colours import COLOURS, class_colour
from duet.utils.files.atomic import atomic_file
from duet.utils.report.drawing import drawable_name, font_for

# Of matplotlib, which is imported where it draws.
Figure = Any
Axes = Any

GREY, INK, GRID = "#C8C8C8", "#303030", "#E4E4E4"
DOTS_PER_INCH = 110
MAX_BRIGHTNESS = 0.43  # of lines; white is 1

MAX_NAMED = len(COLOURS)  # classes named in a figure of curves, in distinguishable colours
MAX_NAME_LETTERS = 24
# Characters that a name's font must have too: numbers next to it, and "lp" to measure line heights.
BESIDE_NAMES = "0123456789. lp"


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, Axes]:
    figure = empty_figure(width, height)
    panels = figure.subplots(rows, columns)
    for axes in np.ravel(panels):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, panels


def panel_grid(number: int, a_row: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    rows, columns = -(-number // a_row), min(number, a_row)
    figure, panels = new_figure(rows, columns, width * columns, height * rows)
    places = np.ravel(panels)
    for axes in places[number:]:
        axes.set_visible(False)
    return figure, places[:number]


def empty_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")


def whole_numbers() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True)


def save_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure in the format given by the file name, with options for `print_figure`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with atomic_file(path) as file:
        FigureCanvasAgg(figure).print_figure(
            file, format=path.suffix[1:], pil_kwargs={"quality": 95}, **options
        )


def line_colour(class_index: int) -> tuple[float, ...]:
    """Return a class's colour for lines on white, darkened if pale."""
    colour = np.array(colour_of(class_index))
    linear = colour**2.2
    brightness = float(linear @ (0.2126, 0.7152, 0.0722))  # sRGB, with gamma about 2.2
    return tuple(np.minimum(1.0, MAX_BRIGHTNESS / brightness) ** (1 / 2.2) * colour)


def colour_of(class_index: int) -> tuple[float, ...]:
    return tuple(level / 255 for level in class_colour(class_index))


def named_classes(num_labels: np.ndarray) -> list[int]:
    """Return the classes to name in a figure of curves: those with the most labels, in order.

    num_labels: (C,) per class; classes without labels are never named.
    """
    most = np.argsort(-num_labels, kind="stable")[:MAX_NAMED]
    return sorted(most[num_labels[most] > 0].tolist())


def figure_name(class_names: Sequence[str], index: int) -> str:
    r"""Return a class's name, or number, for matplotlib, where $ would start a formula."""
    return cut(drawable_name(class_names[index], index)).replace("$", r"\$")


def cut(name: str) -> str:
    return name if len(name) <= MAX_NAME_LETTERS else name[: MAX_NAME_LETTERS - 2] + ".."


def set_fonts(texts: Iterable[Any]) -> None:
    """Set fonts with the characters of a figure's texts; matplotlib's default has few."""
    from matplotlib.font_manager import FontProperties

    for text in texts:
        if font := font_for(text.get_text() + BESIDE_NAMES):
            text.set_fontproperties(FontProperties(fname=font, size=text.get_fontsize()))
