"""COCO's segmentations: polygons of several pieces, and masks coded by their runs.

Formats: https://cocodataset.org/#format-data; the text form of runs is that of pycocotools'
`mask.frPyObjects` and `mask.decode`, measured there.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from duet.utils.data.masks.runs import from_text
from duet.utils.errors import brief
from duet.utils.image_limits import MAX_SIDE, MOST_PIXELS
from duet.utils.polygons import join_parts


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


def read_runs(segmentation: Mapping[str, Any]) -> MaskRuns:
    """Read a mask.

    Args:
        segmentation: {"size": [height, width], "counts": runs}, as numbers or as text.

    Raises:
        ValueError: runs that are damaged, or do not fill the size.
    """
    size = segmentation.get("size")
    sides = size if isinstance(size, list) and len(size) == 2 else [0]
    if not all(type(side) is int and 0 < side <= MAX_SIDE for side in sides):
        raise ValueError(f"a mask of size {brief(size)}; accepted: [height, width]")
    height, width = sides
    counts = segmentation.get("counts")
    try:
        runs = from_text(counts).astype(np.int64) if isinstance(counts, str) else np.array(counts)
    except ValueError as error:
        raise ValueError(f"the runs of its mask are {brief(counts)}: {error!s:.100}") from error
    if not isinstance(counts, (str, list)) or runs.ndim != 1 or runs.dtype != np.int64:
        raise ValueError(f"the runs of its mask are {brief(counts)}")
    # The sum of what is clipped stays far below 64 bits.
    if (runs < 0).any() or runs.clip(0, MOST_PIXELS + 1).sum() != height * width:
        raise ValueError(f"the runs of its mask do not fill {width}x{height} px")
    return MaskRuns(runs, (height, width))


def outline_of_runs(mask: MaskRuns) -> np.ndarray:
    """Return the outline (K, 2) of a mask, exactly along the edges of its pixels; K may be 0."""
    parts = _loops(*_corners(mask.lengths, mask.size[0]))
    return join_parts(parts) if parts else np.zeros((0, 2))


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
