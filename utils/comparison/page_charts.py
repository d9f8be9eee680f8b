"""The charts of compare.html as inline SVG and HTML, without a script.

Bars are in per cent of their column and texts outside the SVG, so that both fit any width.

Before: `document.py`. After: `report_html.py` puts them on the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from utils.comparison.equality import summed_loss
from utils.comparison.measured import Document
from utils.comparison.plan import EXTERNAL
from utils.comparison.tables import marks, number, stage_name, stages_of

NUM_SIDE_COLOURS = 5
NUM_STAGE_COLOURS = 10
OPACITIES = (1.0, 0.6, 0.8, 0.45)


class Bar(NamedTuple):
    """One line of a bar chart; parts are (share, colour, opacity, what it is) side by side."""

    cell: str
    label: str
    value: str
    parts: Sequence[tuple[float, str, float, str]]
    whisker: tuple[float, float] | None = None  # shares


def side_colours(document: Document) -> dict[str, str]:
    """A colour a trainer, in the order of the cells."""
    sides = dict.fromkeys(cell["side"] for cell in document["cells"])
    return {side: f"var(--side{index % NUM_SIDE_COLOURS})" for index, side in enumerate(sides)}


def opacities(document: Document) -> dict[str, float]:
    """A strength of colour a variant."""
    variants = dict.fromkeys(cell["variant"] for cell in document["cells"])
    strengths = {name: OPACITIES[place % len(OPACITIES)] for place, name in enumerate(variants)}
    return {**strengths, EXTERNAL: 1.0}


def by_batch(
    document: Document, kind: str, unit: str, make: Callable[[Document], Bar | None]
) -> str:
    """A group of bars for each batch size; a figure that is marked is so here too."""
    marked, parts = marks(document), []
    for batch in dict.fromkeys(cell["batch"] for cell in document["cells"]):
        cells = (cell for cell in document["cells"] if cell["batch"] == batch)
        bars = [bar for cell in cells if (bar := make(cell)) is not None]
        if bars:
            rows = "".join(_bar(bar, marked.get(bar.cell, "")) for bar in bars)
            parts.append(
                f'<h3>batch {batch}, {unit}</h3><div class="bars" data-chart="{kind}">{rows}</div>'
            )
    return "".join(parts)


def _bar(bar: Bar, mark: str) -> str:
    rectangles, start = [], 0.0
    for share, colour, opacity, title in bar.parts:
        rectangles.append(
            f'<rect x="{100 * start:.3f}%" width="{100 * share:.3f}%" y="10%" height="80%" '
            f'fill="{colour}" fill-opacity="{opacity}"><title>{escape(title)}</title></rect>'
        )
        start += share
    if bar.whisker:
        low, high = (f"{100 * share:.3f}%" for share in bar.whisker)
        rectangles.append(
            f'<line x1="{low}" x2="{high}" y1="50%" y2="50%" stroke="var(--ink)" stroke-width="2"/>'
        )
    text = escape(f"{bar.label}: {bar.value}")
    return (
        f'<div class="label">{escape(bar.label)} <span class="bad">{escape(mark)}</span></div>'
        f'<div class="bar" data-cell="{escape(bar.cell)}"><svg role="img" aria-label="{text}">'
        f"{''.join(rectangles)}</svg></div>"
        f'<div class="value">{escape(bar.value)}</div>'
    )


def epoch_bars(document: Document) -> str:
    """Median seconds per epoch, with a line from the fastest to the slowest."""
    spreads = [cell["seconds_per_epoch"] for cell in document["cells"]]
    longest = max((found["max"] for found in spreads if found), default=1.0)
    colours, strengths = side_colours(document), opacities(document)

    def make(cell: Document) -> Bar | None:
        found = cell["seconds_per_epoch"]
        if found is None:
            return None
        value = f"{number(found['median'])} s"
        part = (found["median"] / longest, colours[cell["side"]], strengths[cell["variant"]],
                f"{number(found['min'])} to {number(found['max'])} s")  # fmt: skip
        whisker = found["min"] / longest, found["max"] / longest
        return Bar(cell["name"], label(cell), value, [part], whisker)

    return by_batch(document, "epochs", "seconds per epoch", make)


def stage_bars(document: Document) -> str:
    """The stages of an epoch one after the other."""
    stages = stages_of(document)
    colours = {
        stage: f"var(--stage{index % NUM_STAGE_COLOURS})" for index, stage in enumerate(stages)
    }
    longest = max((sum(cell["stages"].values()) for cell in document["cells"]), default=0) or 1.0

    def make(cell: Document) -> Bar | None:
        if not cell["stages"]:
            return None
        parts = [
            (seconds / longest, colours[stage], 1.0, f"{stage_name(stage)}: {number(seconds)} s")
            for stage, seconds in cell["stages"].items()
        ]
        total = sum(cell["stages"].values())
        return Bar(cell["name"], label(cell), f"{number(total)} s", parts)

    legend = "".join(
        f'<span style="--swatch:{colour}">{escape(stage_name(stage))}</span>'
        for stage, colour in colours.items()
    )
    return f'<div class="legend">{legend}</div>' + by_batch(document, "stages", "seconds", make)


def memory_bars(document: Document, where: str) -> str:
    """Peak memory of "host" or "device"."""
    name = f"peak_{where}_mib"
    largest = max((cell[name] or 0.0 for cell in document["cells"]), default=0.0) or 1.0
    colours, strengths = side_colours(document), opacities(document)

    def make(cell: Document) -> Bar | None:
        mib = cell[name]
        if mib is None:
            return None
        text = f"{mib:.0f} MiB"
        part = (mib / largest, colours[cell["side"]], strengths[cell["variant"]], text)
        return Bar(cell["name"], label(cell), text, [part])

    return by_batch(document, f"{where}-memory", f"{where} MiB", make)


def label(cell: Document) -> str:
    return cell["side"] if cell["variant"] == EXTERNAL else f"{cell['side']} {cell['variant']}"


def loss_curves(document: Document) -> str:
    """The summed loss of each batch: the two sides over each other, or all variants of one."""
    several_sides = len(document["settings"]["backends"]) > 1
    groups: dict[str, list[Document]] = {}
    for cell in document["cells"]:
        if cell["checked"] and _losses(cell):
            title = f"batch {cell['batch']}" + (f", {cell['variant']}" if several_sides else "")
            groups.setdefault(title, []).append(cell)
    figures = "".join(_curves(title, cells, document) for title, cells in groups.items())
    return f'<div class="curves">{figures}</div>'


def _losses(cell: Document) -> dict[int, float]:
    """Of the first run that ended well, by batch from 0; those that are finite."""
    runs = [run for run in cell["runs"] if not run["failure"] and run.get("losses")]
    losses = map(summed_loss, runs[0]["losses"]) if runs else ()
    return {place: loss for place, loss in enumerate(losses) if math.isfinite(loss)}


def _curves(title: str, cells: Sequence[Document], document: Document) -> str:
    by_cell = {cell["name"]: _losses(cell) for cell in cells}
    everything = [loss for losses in by_cell.values() for loss in losses.values()]
    low, high = min(everything), max(everything)
    count = 1 + max(max(losses) for losses in by_cell.values())
    same_side = len({cell["side"] for cell in cells}) == 1
    lines, legend = [], []
    for index, cell in enumerate(cells):
        if same_side:
            colour = f"var(--stage{(index + 2) % NUM_STAGE_COLOURS})"
        else:
            colour = side_colours(document)[cell["side"]]
        points = " ".join(
            f"{100 * place / max(count - 1, 1):.2f},{_height(loss, low, high):.2f}"
            for place, loss in by_cell[cell["name"]].items()
        )
        # The first is drawn broad, the others dashed over it: where they agree, both are seen.
        style = 'stroke-width="5" stroke-opacity=".45"' if index == 0 else (
            'stroke-width="2" stroke-dasharray="6 4"'
        )  # fmt: skip
        lines.append(
            f'<polyline data-cell="{escape(cell["name"])}" points="{points}" fill="none" '
            f'stroke="{colour}" {style} vector-effect="non-scaling-stroke"/>'
        )
        legend.append(f'<span style="--swatch:{colour}">{escape(label(cell))}</span>')
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<div class="legend">{"".join(legend)}</div><div class="plot">'
        f'<div class="y"><span>{number(high)}</span><span>{number(low)}</span></div>'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="losses, {escape(title)}">{"".join(lines)}</svg>'
        f'<div class="x"><span>1</span><span>batch {count}</span></div></div></figure>'
    )


def _height(loss: float, low: float, high: float) -> float:
    return 96 - 92 * (loss - low) / ((high - low) or 1.0)
