"""The charts of compare.html as inline SVG and HTML, without a script.

Bars are in percent of their column, and texts are outside the SVG: both fit any width.

Before: `document.py`. After: `report_html.py` puts them on the page, above a section's table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from utils.comparison.equality import summed_loss
from utils.comparison.measured import Document
from utils.comparison.plan import EXTERNAL
from utils.comparison.report import marks, stages_of
from utils.comparison.words import number, stage_name

NUM_SIDE_COLOURS = 5
NUM_STAGE_COLOURS = 10
OPACITIES = (1.0, 0.6, 0.8, 0.45)


class Part(NamedTuple):
    """A piece of a bar."""

    amount: float
    colour: str
    opacity: float
    title: str


class Bar(NamedTuple):
    """One line of a bar chart: parts side by side, and a line over them."""

    value: str
    parts: Sequence[Part]
    whisker: tuple[float, float] | None = None


def bar_chart(
    document: Document, name: str, unit: str, bar_of: Callable[[Document], Bar | None]
) -> str:
    """Return a group of bars for each batch size, with the marks of the figures."""
    bars = {cell["name"]: bar for cell in document["cells"] if (bar := bar_of(cell))}
    ends = (bar.whisker[1] if bar.whisker else _length(bar) for bar in bars.values())
    longest, marked = max(ends, default=0.0) or 1.0, marks(document)
    groups: dict[int, str] = {}
    for cell in document["cells"]:
        if cell["name"] in bars:
            row = _row(cell, bars[cell["name"]], longest, marked.get(cell["name"], ""))
            groups[cell["batch"]] = groups.get(cell["batch"], "") + row
    return "".join(
        f'<h3>batch {batch}, {unit}</h3><div class="bars" data-chart="{name}">{rows}</div>'
        for batch, rows in groups.items()
    )


def _length(bar: Bar) -> float:
    return sum(part.amount for part in bar.parts)


def _row(cell: Document, bar: Bar, longest: float, mark: str) -> str:
    shapes, start = [], 0.0
    for part in bar.parts:
        shapes.append(
            f'<rect x="{_percent(start / longest)}" width="{_percent(part.amount / longest)}" '
            f'y="10%" height="80%" fill="{part.colour}" fill-opacity="{part.opacity}">'
            f"<title>{escape(part.title)}</title></rect>"
        )
        start += part.amount
    if bar.whisker:
        low, high = (_percent(end / longest) for end in bar.whisker)
        shapes.append(
            f'<line x1="{low}" x2="{high}" y1="50%" y2="50%" stroke="var(--ink)" stroke-width="2"/>'
        )
    return (
        f'<div class="label">{escape(label(cell))} {badge(mark)}</div>'
        f'<div class="bar" data-cell="{escape(cell["name"])}">'
        f'<svg role="img" aria-label="{escape(f"{label(cell)}: {bar.value}")}">'
        f'{"".join(shapes)}</svg></div><div class="value">{escape(bar.value)}</div>'
    )


def badge(mark: str) -> str:
    """Return a warning next to a figure, in red unless it is only the load; "" for none."""
    kind = "badge" if mark.endswith("under load") and "," not in mark else "badge wrong"
    return f'<span class="{kind}">{escape(mark)}</span>' if mark else ""


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3f}%"


def label(cell: Document) -> str:
    """Return the name of a trainer and its options, in the words of the flags."""
    return cell["side"] if cell["variant"] == EXTERNAL else f"{cell['side']} {cell['variant']}"


def side_colours(document: Document) -> dict[str, str]:
    """Return one colour per trainer, in the order of the cells."""
    sides = dict.fromkeys(cell["side"] for cell in document["cells"])
    return {side: f"var(--side{index % NUM_SIDE_COLOURS})" for index, side in enumerate(sides)}


def epoch_bars(document: Document) -> str:
    """Return median seconds per epoch, with a line from the fastest to the slowest."""

    colours = side_colours(document)
    variants = list(dict.fromkeys(cell["variant"] for cell in document["cells"]))

    def bar_of(cell: Document) -> Bar | None:
        if (found := cell["seconds_per_epoch"]) is None:
            return None
        opacity = OPACITIES[variants.index(cell["variant"]) % len(OPACITIES)]
        title = f"median; {number(found['min'])} to {number(found['max'])} s"
        part = Part(found["median"], colours[cell["side"]], opacity, title)
        return Bar(f"{number(found['median'])} s", [part], (found["min"], found["max"]))

    return bar_chart(document, "epochs", "seconds", bar_of)


def stage_bars(document: Document) -> str:
    """Return bars of the stages of an epoch, below a legend."""
    colours = {
        stage: f"var(--stage{index % NUM_STAGE_COLOURS})"
        for index, stage in enumerate(stages_of(document))
    }

    def bar_of(cell: Document) -> Bar | None:
        parts = [
            Part(seconds, colours[stage], 1.0, f"{stage_name(stage)}: {number(seconds)} s")
            for stage, seconds in cell["stages"].items()
        ]
        return Bar(f"{number(sum(cell['stages'].values()))} s", parts) if parts else None

    named = {stage_name(stage): colour for stage, colour in colours.items()}
    return legend(named) + bar_chart(document, "stages", "seconds", bar_of)


def legend(colours: Mapping[str, str]) -> str:
    """Return a legend: each name with its colour; "" for none."""
    items = (
        f'<span style="--swatch:{colour}">{escape(name)}</span>' for name, colour in colours.items()
    )
    return f'<div class="legend">{"".join(items)}</div>' if colours else ""


def loss_curves(document: Document) -> str:
    """Return curves of the summed loss of each batch, of all backends or of one's variants."""
    several_sides = len(document["settings"]["backends"]) > 1
    groups: dict[str, dict[str, dict[int, float]]] = {}
    colours: dict[str, str] = {}
    for index, cell in enumerate(document["cells"]):
        losses = _losses(cell) if cell["checked"] else {}
        if losses:
            title = f"batch {cell['batch']}" + (f", {cell['variant']}" if several_sides else "")
            groups.setdefault(title, {})[cell["name"]] = losses
            colours[cell["name"]] = (
                side_colours(document)[cell["side"]]
                if several_sides
                else f"var(--side{index % NUM_SIDE_COLOURS})"
            )
    figures = (_curves(title, curves, colours) for title, curves in groups.items())
    return f'<div class="curves">{"".join(figures)}</div>' if groups else ""


def _losses(cell: Document) -> dict[int, float]:
    """Return the finite losses of the first successful run, by batch from 0."""
    runs = [run for run in cell["runs"] if not run["failure"] and run.get("losses")]
    losses = map(summed_loss, runs[0]["losses"]) if runs else ()
    return {batch: loss for batch, loss in enumerate(losses) if math.isfinite(loss)}


def _curves(
    title: str, curves: Mapping[str, Mapping[int, float]], colours: Mapping[str, str]
) -> str:
    """Return a figure with one line per cell."""
    everything = [loss for losses in curves.values() for loss in losses.values()]
    low, high = min(everything), max(everything)
    last = max(max(losses) for losses in curves.values())
    lines: list[str] = []
    for name, losses in curves.items():
        points = " ".join(
            f"{100 * batch / max(last, 1):.2f},{96 - 92 * (loss - low) / ((high - low) or 1.0):.2f}"
            for batch, loss in losses.items()
        )
        # The first line is broad, the others are dashed over it: equal lines are both visible.
        style = 'stroke-width="2" stroke-dasharray="6 4"' if lines else (
            'stroke-width="5" stroke-opacity=".45"'
        )  # fmt: skip
        lines.append(
            f'<polyline data-cell="{escape(name)}" points="{points}" fill="none" '
            f'stroke="{colours[name]}" {style} vector-effect="non-scaling-stroke"/>'
        )
    return (
        f"<figure><figcaption>loss by batch, {escape(title)}</figcaption>"
        f'{legend({name: colours[name] for name in curves})}<div class="plot">'
        f'<div class="y"><span>{number(high)}</span><span>{number(low)}</span></div>'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="losses, {escape(title)}">{"".join(lines)}</svg>'
        f'<div class="x"><span>1</span><span>batch {last + 1}</span></div></div></figure>'
    )


# By the name of their section.
CHARTS: Mapping[str, Callable[[Document], str]] = {
    "times": epoch_bars,
    "split": stage_bars,
    "outcomes": loss_curves,
}
