"""Bar charts of numbers that stand in a table of a page."""

from __future__ import annotations

from collections.abc import Sequence

from docs.figures.drawing import LETTERS, WIDTH, Axes, Figure, number, text_width
from duet.utils.project import PROJECT

BAR, GAP, BELOW, ABOVE = 20, 14, 44, 30
HUES = ("blue", "orange", "green")
Row = tuple[str, Sequence[float]]  # label, and a value per bar


def table_below(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading of docs/en, without its first lines."""
    text = (PROJECT / "docs" / "en" / page).read_text(encoding="utf-8")
    lines = text[text.index(f"# {heading}\n") :].splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def bars(title: str, language: str, unit: str, names: Sequence[str], rows: Sequence[Row]) -> Figure:
    """Draw a group of bars per row.

    names: of the bars of a group, for the legend.
    """
    left = max(text_width(label) for label, _ in rows) + 12
    tall = len(names) * BAR + GAP
    height = ABOVE + tall * len(rows) + BELOW
    figure = Figure(height, title, language)
    largest = max(value for _, values in rows for value in values)
    area = (left, ABOVE, WIDTH - left - 44, tall * len(rows))
    axes = Axes(figure, area, (0, largest), (0, 1))
    x = left
    for name, hue in zip(names, HUES, strict=False):
        figure.rectangle(x, 4, 14, 14, f"f-{hue}")
        figure.text(x + 20, 16, name)
        x += 36 + text_width(name)
    for place, (label, values) in enumerate(rows):
        top = ABOVE + place * tall + GAP / 2
        figure.text(left - 8, top + (tall - GAP + LETTERS) / 2 - 3, label, "end")
        for turn, value in enumerate(values):
            end, _ = axes.at(value, 0)
            y = top + turn * BAR
            figure.rectangle(left, y, end - left, BAR - 3, f"f-{HUES[turn]}")
            figure.text(end + 6, y + LETTERS - 1, number(value), "f-soft")
    figure.line([(left, ABOVE), (left, ABOVE + tall * len(rows))], "stroke thin s-line")
    figure.text(WIDTH, height - 12, unit, "end f-soft")
    return figure
