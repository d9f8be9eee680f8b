"""The tables of both reports, as texts.

Before: `figures.py`. After: `summary.py`, `check_page.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from utils.data.check.advice import percent
from utils.data.check.checking import Check
from utils.data.check.figures import PERCENTILES, SIZE_STEPS, SMALL_SIDES, Figures, Spread

LONGEST_NAME = 60  # characters


class Table(NamedTuple):
    """A heading and rows of as many cells."""

    heading: list[str]
    rows: list[list[str]]


def split_table(check: Check, figures: Figures) -> Table:
    """Return what each split has; its objects only if they have boxes."""
    named = {"images": figures.num_images, "left out": figures.num_left_out}
    if check.has_boxes:
        named |= {"without objects": figures.num_without_objects, "objects": figures.num_objects}
    rows = [
        [split, *(f"{column[number]:,}" for column in named.values())]
        for number, split in enumerate(figures.splits)
    ]
    return Table(["split", *named], rows)


def class_table(check: Check, figures: Figures) -> Table:
    """Return the images of each class in each split, and its objects if they have boxes."""
    if not check.has_boxes:
        heading = ["class", *(f"images in {split}" for split in figures.splits)]
        titles = [class_title(number, found.name) for number, found in enumerate(figures.classes)]
        cells = [[f"{number:,}" for number in found.num_images] for found in figures.classes]
        return Table(heading, [[title, *row] for title, row in zip(titles, cells, strict=True)])
    heading = ["class"]
    for split in figures.splits:
        heading += [f"images in {split}", f"objects in {split}"]
    heading.append(f"below {SMALL_SIDES[-1]} px")
    rows = []
    for number, found in enumerate(figures.classes):
        row = [class_title(number, found.name)]
        for images, objects in zip(found.num_images, found.num_objects, strict=True):
            row += [f"{images:,}", f"{objects:,}"]
        rows.append([*row, percent(found.small) if sum(found.num_objects) else ""])
    return Table(heading, rows)


def class_title(number: int, name: str) -> str:
    """Return number and name of a class, cut to a length that a table has room for."""
    return f"{number} {name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + '...'}"


def spread_table(spreads: Sequence[Spread]) -> Table:
    """Return the percentiles of quantities."""
    names = {0: "least", 50: "median", 100: "most"}
    heading = ["", *(names.get(part, f"{part} % are below") for part in PERCENTILES)]
    rows = [[spread.name, *map(_figure, spread.values)] for spread in spreads]
    return Table(heading, rows)


def _figure(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size_steps(figures: Figures) -> list[tuple[str, float]]:
    """Return the fraction of the objects whose shorter side is in each range."""
    ends = [*SIZE_STEPS[1:], None]
    names = [
        f"{low} to {high} px" if high else f"{low} px and more"
        for low, high in zip(SIZE_STEPS, ends, strict=True)
    ]
    return list(zip(names, figures.size_steps, strict=True))


def anchor_text(figures: Figures) -> str:
    """Return how well the anchors fit, in words."""
    fit = figures.anchors
    if fit is None:
        return "No anchors to compare with: the model has none, or train has no object"
    return (
        f"{figures.num_anchors} anchors reach {percent(fit.best_possible_recall)} of the objects "
        f"of train at --img {figures.image_size}, {fit.anchors_per_target:.2f} anchors per object"
    )


def small_text(figures: Figures) -> str:
    """Return how many objects are small, in words."""
    parts = [
        f"{percent(part)} below {side} px"
        for side, part in zip(SMALL_SIDES, figures.small, strict=True)
    ]
    return f"Shorter side of the objects at --img {figures.image_size}: {', '.join(parts)}"


def shortened(text: str, check: Check) -> str:
    """Return a text with the files of a dataset named from its folder on."""
    return text.replace(f"{check.dataset.root}{os.sep}", "")
