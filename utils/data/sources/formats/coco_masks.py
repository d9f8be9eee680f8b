"""COCO's segmentations -> one outline: polygons of several parts, and masks coded by their runs.

Before: `coco_file.py`. Formats: https://cocodataset.org/#format-data; the text form of runs is
that of pycocotools' `mask.frPyObjects` and `mask.decode`, measured there.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from utils.data.image.limits import MAX_SIDE, MOST_PIXELS
from utils.errors import brief

_FIRST_CHARACTER = 48  # stands for 0; each character has 5 bits of a number, the lowest first
_GOES_ON, _NEGATIVE = 32, 16  # bits of a character
_MOST_CHARACTERS = 7  # of a number: 35 bits, above all pixels of an image


class MaskRuns(NamedTuple):
    """A mask as COCO codes it: its pixels column by column, the first run outside."""

    lengths: np.ndarray  # (N,) int64, which fill the size
    size: tuple[int, int]  # height, width


def read_pieces(segmentation: Sequence[Any]) -> list[array[float]]:
    """Return the pieces of a polygon, each x1, y1, x2, y2, ..., at least three points.

    Raises:
        ValueError, TypeError: what is listed is no polygon.
    """
    if not isinstance(segmentation[0], list):
        segmentation = [segmentation]  # not COCO's way, and clear
    pieces = [array("d", piece) for piece in segmentation]
    if any(len(piece) % 2 for piece in pieces):
        raise ValueError(f"{brief(segmentation)}; x1, y1, x2, y2, ... are needed")
    return [piece for piece in pieces if len(piece) >= 6]  # two points enclose nothing


def join_parts(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return one outline (K, 2) of what several enclose, each (N, 2); holes are parts too.

    Each part is joined to the next by a line that is walked once in each direction, so that it
    encloses nothing. Time is linear in the number of points.
    """
    if len(parts) == 1:
        return parts[0]
    there: list[np.ndarray] = []
    back: list[np.ndarray] = []
    entry = 0
    for part, following in zip(parts[:-1], parts[1:], strict=True):
        leave = _nearest(part, following[0])
        ring = np.roll(part, -entry, axis=0)
        turn = (leave - entry) % len(part)
        there.append(ring[: turn + 1])
        back += [ring[:1], ring[turn:]]  # from the end: what follows the leave, then the entry
        entry = _nearest(following, part[leave])
    last = np.roll(parts[-1], -entry, axis=0)
    return np.concatenate([*there, last, last[:1], *reversed(back)])[:-1]


def _nearest(points_xy: np.ndarray, place_xy: np.ndarray) -> int:
    with np.errstate(invalid="ignore", over="ignore"):  # of what is no number any point will do
        return int(((points_xy - place_xy) ** 2).sum(1).argmin())


def mask_outline(segmentation: Mapping[str, Any]) -> np.ndarray:
    """Return the outline (K, 2) of a mask, exactly along the edges of its pixels; K may be 0.

    The argument and the errors are those of `read_runs`.
    """
    runs, (height, _) = read_runs(segmentation)
    parts = _loops(*_corners(runs, height))
    return join_parts(parts) if parts else np.zeros((0, 2))


def read_runs(segmentation: Mapping[str, Any]) -> MaskRuns:
    """Read a mask.

    Args:
        segmentation: {"size": [height, width], "counts": runs}, as numbers or as text.

    Raises:
        ValueError: runs that are damaged, or do not fill the size.
    """
    size = segmentation.get("size")
    if not (isinstance(size, list) and len(size) == 2 and all(map(_is_side, size))):
        raise ValueError(f"a mask of size {brief(size)}; [height, width] is needed")
    runs = _read_counts(segmentation.get("counts"))
    height, width = size
    if (runs < 0).any() or runs.sum() != height * width:
        raise ValueError(f"the runs of its mask do not fill {width}x{height} px")
    return MaskRuns(runs, (height, width))


def _is_side(value: Any) -> bool:
    return type(value) is int and 0 < value <= MAX_SIDE


def _read_counts(counts: Any) -> np.ndarray:
    """Return the lengths of the runs, int64."""
    if isinstance(counts, str):
        return _from_text(counts)
    try:
        runs = np.array(counts)
    except ValueError as error:
        raise ValueError(f"the runs of its mask are {brief(counts)}") from error
    if not isinstance(counts, list) or runs.ndim != 1 or runs.dtype != np.int64:
        raise ValueError(f"the runs of its mask are {brief(counts)}")
    return runs.clip(-1, MOST_PIXELS + 1)  # their sum stays far below 64 bits


def _from_text(text: str) -> np.ndarray:
    """Return the runs of the text form: from the fourth on, differences to the last but one."""
    codes = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
    values = codes.astype(np.int64) - _FIRST_CHARACTER
    goes_on = (values & _GOES_ON) > 0
    lengths = np.diff(np.flatnonzero(~goes_on), prepend=-1)
    is_code = ((values >= 0) & (values < 64)).all() and len(values) > 0
    if not is_code or goes_on[-1] or lengths.max() > _MOST_CHARACTERS:
        raise ValueError(f"the runs of its mask are {brief(text)}")
    starts = np.cumsum(lengths) - lengths
    shifts = 5 * (np.arange(len(values)) - np.repeat(starts, lengths))
    numbers = np.add.reduceat((values & 31) << shifts, starts)
    is_negative = (values[~goes_on] & _NEGATIVE) > 0
    numbers -= is_negative * (1 << (5 * lengths))
    for first in (1, 2):
        numbers[first::2] = np.cumsum(numbers[first::2])
    return numbers


def _corners(runs: np.ndarray, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the edge of a mask turns: points (N, 2) int64, and how, (N,).

    A run covers the rest of its first column, full columns, and the start of its last one. Of
    these rectangles the corners are counted, with the sign of the mask's mixed difference in x
    and y there: what remains is 1 or -1 at a corner, 2 or -2 where two touch, 0 elsewhere.
    """
    ends = np.cumsum(runs)
    first, end = (ends[: len(ends) // 2 * 2].reshape(-1, 2)).T
    first, end = first[end > first], end[end > first]
    (x0, top), (x1, bottom) = np.divmod(first, height), np.divmod(end, height)
    # Below `first` minus below `end`, where below a pixel means: it, and all that are counted
    # later. That is [x, x + 1) x [y, height) and [x + 1, ...) x [0, height).
    column = height + 1  # a corner is numbered as a pixel, with one more in each column
    places, signs = [], []
    for x, y, sign in ((x0, top, 1), (x1, bottom, -1)):
        start = x * column
        places += [start + y, start + column + y, start + column, start + height]
        signs += [np.full(len(x), sign * turn, np.int8) for turn in (1, -1, 1, -1)]
    numbers, place = np.unique(np.concatenate(places), return_inverse=True)
    turns = np.bincount(place, np.concatenate(signs), len(numbers)).astype(np.int64)
    numbers, turns = numbers[turns != 0], turns[turns != 0]
    return np.stack(np.divmod(numbers, column), axis=1), turns


def _loops(corners: np.ndarray, turns: np.ndarray) -> list[np.ndarray]:
    """Return the closed lines (K, 2) float64 through all corners, along columns and rows.

    Of the corners of a column, sorted, the first and the second are joined, and so on; likewise
    of a row. Where pixels touch at a corner, they belong to one line.
    """
    repeated = np.repeat(np.arange(len(corners)), np.abs(turns))
    points = corners[repeated]  # sorted by x, then y
    second = np.concatenate(([False], repeated[1:] == repeated[:-1]))
    order = np.where(turns[repeated] > 0, ~second, second)
    by_row = np.lexsort((order, points[:, 0], points[:, 1]))
    beside = np.empty(len(points), np.int64)
    beside[by_row] = by_row.reshape(-1, 2)[:, ::-1].ravel()
    next_row = beside.tolist()
    is_new, loops = [True] * len(points), []
    for start in range(len(points)):
        loop, at = [], start
        while is_new[at]:
            other = at ^ 1  # of the column
            is_new[at] = is_new[other] = False
            loop += [at, other]
            at = next_row[other]
        if loop:
            loops.append(points[loop].astype(np.float64))
    return loops
