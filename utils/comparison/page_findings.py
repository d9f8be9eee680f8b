"""The comparisons of compare.html: a row each, its ratio as a point with its range on one axis.

Before: `findings.py`. After: `report_html.py` puts them on the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from utils.comparison.findings import OPTIONS, Finding
from utils.comparison.page_charts import badge
from utils.comparison.words import number, trainer_name

MARGIN = 1.1  # of the axis beyond the furthest ratio
LEAST = 1.25  # the axis reaches at least from 1 / 1.25 to 1.25: noise must not look large
TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
FINE_TICKS = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6)
FINE = 3.0  # of an axis whose ends are less than so many times apart


class Axis:
    """Positions of ratios on a log scale: twice as fast is as far from 1 as twice as slow."""

    def __init__(self, found: Sequence[Finding]) -> None:
        ends = [end for f in found if f.ratio for end in (f.ratio["min"], f.ratio["max"])]
        self._low = min([*ends, 1 / LEAST]) / MARGIN
        self._high = max([*ends, LEAST]) * MARGIN

    def place(self, ratio: float) -> str:
        """Return the position of a ratio, in percent of the width."""
        part = math.log(ratio / self._low) / math.log(self._high / self._low)
        return f"{100 * part:.2f}%"

    def ticks(self) -> list[float]:
        among = FINE_TICKS if self._high / self._low < FINE else TICKS
        return [tick for tick in among if self._low <= tick <= self._high]


def findings_list(found: Sequence[Finding], colours: Mapping[str, str]) -> str:
    """Return the rows below the names of what they compare, on one axis; "" for no findings.

    Args:
        colours: by backend or trainer.
    """
    axis = Axis(found)
    groups: dict[str, list[Finding]] = {}
    for finding in found:
        groups.setdefault(_heading(finding), []).append(finding)
    return "".join(
        f'<h3>{escape(title)}</h3><ul class="findings">'
        f"{''.join(_row(finding, axis, colours) for finding in rows)}</ul>{_scale(axis)}"
        f"{_details(rows)}"
        for title, rows in groups.items()
    )


def _heading(finding: Finding) -> str:
    """Return what the rows of one list compare: all options of a backend are in one."""
    if finding.kind == OPTIONS:
        return f"{trainer_name(finding.side)}, each option compared with {finding.reference}"
    return f"{finding.subject} compared with {finding.reference}"


def _row(finding: Finding, axis: Axis, colours: Mapping[str, str]) -> str:
    told = " told" if finding.is_told else ""
    figure = f'<span class="ratio">{finding.figure} ×</span>' if finding.figure else ""
    spread = f'<span class="soft">{escape(finding.spread)}</span>' if finding.spread else ""
    alarms = "".join(map(badge, finding.alarms))
    return (
        f'<li class="finding{told}"><div class="label">{escape(finding.label)}{alarms}</div>'
        f"{_point(finding, axis, colours[finding.side])}"
        f'<div class="said">{figure}<span class="verdict">{escape(finding.verdict)}</span>'
        f"{spread}</div></li>"
    )


def _point(finding: Finding, axis: Axis, colour: str) -> str:
    if finding.ratio is None:
        return '<div class="track"></div>'
    low, median, high = (axis.place(finding.ratio[name]) for name in ("min", "median", "max"))
    said = f"{number(finding.ratio['median'])} times, {finding.spread}"
    return (
        f'<div class="track"><svg role="img" aria-label="{escape(f"{finding.names}: {said}")}">'
        f'<line class="equal" x1="{axis.place(1)}" x2="{axis.place(1)}" y1="0" y2="100%"/>'
        f'<line class="range" x1="{low}" x2="{high}" y1="50%" y2="50%" stroke="{colour}"/>'
        f'<circle cx="{median}" cy="50%" r="6" fill="{colour}"/></svg></div>'
    )


def _scale(axis: Axis) -> str:
    """Return the numbers below the rows."""
    ticks = "".join(
        f'<span style="left:{axis.place(tick)}">{tick:g} ×</span>' for tick in axis.ticks()
    )
    return f'<div class="scale" aria-hidden="true"><div>{ticks}</div></div>'


def _details(found: Sequence[Finding]) -> str:
    """Return what else is known of each pair, folded until the reader opens it."""
    items = "".join(
        f"<li><strong>{escape(finding.names)}</strong><br>"
        f"{escape('; '.join([finding.verdict, *finding.details]))}</li>"
        for finding in found
    )
    return f"<details><summary>Losses and means</summary><ul>{items}</ul></details>"
