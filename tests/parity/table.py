"""Two sets of named arrays -> the lines of one table, each with its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np

from tests.parity.rows import Row


class Line(NamedTuple):
    """A row of the table."""

    section: str  # "float64", "stored torch", ...
    row: str  # "layer 03", "gradients", ...
    item: str  # the tensor that differs most
    absolute: float
    relative: float  # to the largest magnitude in that tensor
    tolerance: float  # of the relative difference

    @property
    def agrees(self) -> bool:
        return self.relative <= self.tolerance


def compare(
    section: str,
    rows: Sequence[Row],
    actual: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
) -> list[Line]:
    """A line for each row; one that finds nothing to compare disagrees.

    Args:
        section: what the lines belong to.
        rows: every name must belong to one of them.
        actual: arrays by "ROW/ITEM".
        reference: the same of the other side.
    """
    names = sorted({*actual, *reference})
    lines, left = [], set(names)
    for row in rows:
        found = [name for name in names if fnmatchcase(row_of(name), row.pattern)]
        left -= set(found)
        for title in sorted(set(map(row_of, found))) or [row.pattern]:
            members = [name for name in found if row_of(name) == title]
            lines.append(worst_line(section, title, row, members, actual, reference))
    assert not left, f"{section}: no row for {sorted(left)}"
    return lines


def row_of(name: str) -> str:
    return name.partition("/")[0]


def worst_line(
    section: str,
    title: str,
    row: Row,
    names: Iterable[str],
    actual: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
) -> Line:
    """The line of the tensor that differs most, and of one that is missing before that."""
    worst = Line(section, title, "nothing to compare", np.inf, np.inf, row.tolerance)
    for index, name in enumerate(names):
        absolute, relative = difference(actual.get(name), reference.get(name), row.floor)
        if index == 0 or relative > worst.relative:
            item = name.partition("/")[2]
            worst = Line(section, title, item, absolute, relative, row.tolerance)
    return worst


def difference(
    actual: np.ndarray | None, reference: np.ndarray | None, floor: float
) -> tuple[float, float]:
    """Largest absolute difference, and that over the reference's largest magnitude or floor.

    Infinite for absent arrays, unequal shapes or dtypes, and anything that is not finite.
    """
    if actual is None or reference is None:
        return np.inf, np.inf
    if actual.shape != reference.shape or actual.dtype != reference.dtype:
        return np.inf, np.inf
    if not (np.isfinite(actual).all() and np.isfinite(reference).all()):
        return np.inf, np.inf
    if actual.size == 0:
        return 0.0, 0.0
    expected = reference.astype(np.float64)
    absolute = float(np.abs(actual.astype(np.float64) - expected).max())
    scale = max(float(np.abs(expected).max()), floor)
    return absolute, absolute / scale if scale > 0 else (np.inf if absolute else 0.0)


def formatted(lines: Iterable[Line]) -> Iterator[str]:
    """The table as text, and in its last line the verdict over all."""
    lines = list(lines)
    yield (
        f"{'compared':<16}{'row':<22}{'worst tensor':<42}"
        f"{'absolute':>10}{'relative':>10}{'tolerance':>11}  verdict"
    )
    for line in lines:
        yield (
            f"{line.section:<16}{line.row:<22}{line.item:<42}{line.absolute:>10.1e}"
            f"{line.relative:>10.1e}{line.tolerance:>11.0e}  {'ok' if line.agrees else 'DIFFERS'}"
        )
    wrong = sum(not line.agrees for line in lines)
    yield f"{len(lines)} rows, " + (f"{wrong} differ" if wrong else "all agree")
