"""Which masks are compared together: positives of one map, and the window that they lie in.

Before: the assignment and the targets' masks. After: `cost.py`, piece by piece on the device. As
the assignment it depends on targets alone and is made in NumPy on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.heads.anchor.assign import Assignment
from utils.boxes import cxcywh_to_xyxy
from utils.data.loading.batch import Targets

# Numbers of a piece: masks times the cells of their window, unless those of one object are more.
MOST_NUMBERS = 2**20


class Window(NamedTuple):
    """Cells of a map, from the first to before the end."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def cells(self) -> int:
        return (self.bottom - self.top) * (self.right - self.left)

    def around(self, other: Window) -> Window:
        """Return the smallest window that holds both."""
        return Window(*np.minimum(self[:2], other[:2]), *np.maximum(self[2:], other[2:]))


class Piece(NamedTuple):
    """Positives whose objects lie in one map."""

    image: int
    map_index: int
    rows: slice
    window: Window


class MaskPieces(NamedTuple):
    """The K positives whose boxes hold a cell, piece by piece."""

    pieces: Sequence[Piece]
    order: np.ndarray  # (K,) int64, among the positives of all levels, level by level
    maps: np.ndarray  # (N, h, w): of the targets, as large as prototypes
    # (K, 6): the window of the box, as `Window`; the value of the object in its map; the weight
    # of each cell: over all cells of the window and positives of the image and level, about 1.
    numbers: np.ndarray


def pieces_of(
    assignments: Sequence[Assignment], targets: Targets, size: tuple[int, int]
) -> MaskPieces:
    """Return all positives, ordered so that those of a piece lie side by side.

    Args:
        assignments: of the levels.
        targets: with masks, in maps of any size; without positives there may be none.
        size: (height, width) of the prototypes.
    """
    target = np.concatenate([level.target_index for level in assignments])
    if not len(target):
        return MaskPieces((), target, np.zeros((0, *size), np.uint8), np.zeros((0, 6)))
    assert targets.masks is not None, "objects without masks"
    maps, map_index, value = targets.masks
    windows = box_windows(targets.boxes_cxcywh_norm, size)
    sides = windows[:, 2:] - windows[:, :2]
    map_index, top = map_index[target], windows[target, 0]
    order = np.lexsort((target, top, map_index))
    order = order[(sides[target[order]] > 0).all(axis=1)]
    weights = np.concatenate([_image_weights(level) for level in assignments])
    areas = targets.boxes_cxcywh_norm[:, 2:].astype(np.float64).prod(axis=1) * np.prod(size)
    target, map_index, weights = target[order], map_index[order], weights[order]
    columns = windows[target], value[target, None], (weights / areas[target])[:, None]
    image = targets.image_index[target]
    return MaskPieces(
        _join(image, map_index, target, windows), order, resized(maps, size), np.hstack(columns)
    )


def box_windows(boxes_cxcywh_norm: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the cells whose corner lies in each box, (T, 4) int64, as `Window`; some are empty."""
    height, width = size
    edges = cxcywh_to_xyxy(boxes_cxcywh_norm * np.array([width, height, width, height], np.float32))
    edges = np.clip(np.ceil(edges), 0, [width, height, width, height])
    return edges[:, [1, 0, 3, 2]].astype(np.int64)


def resized(maps: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return maps (N, H, W) in another size, the nearest value to the top and left of each cell."""
    height, width = maps.shape[1:]
    if (height, width) == tuple(size):
        return maps
    rows = np.arange(size[0]) * height // size[0]
    return maps[:, rows[:, None], np.arange(size[1]) * width // size[1]]


def _image_weights(level: Assignment) -> np.ndarray:
    """Return 1 / the positives of its image at the level, (P,) float64, of each."""
    counts = np.bincount(level.image_index)
    return 1 / counts[level.image_index]


def _join(
    image: np.ndarray, map_index: np.ndarray, target: np.ndarray, windows: np.ndarray
) -> list[Piece]:
    """Join the positives of a map, object by object, as far as a piece may be large."""
    pieces: list[Piece] = []
    starts = np.flatnonzero(np.diff(target, prepend=-1)).tolist()
    ends = (np.flatnonzero(np.diff(target, append=-1)) + 1).tolist()
    for start, end in zip(starts, ends, strict=True):
        window = Window(*windows[target[start]].tolist())
        own = Piece(int(image[start]), int(map_index[start]), slice(start, end), window)
        joined = _joined(pieces[-1], own) if pieces else None
        if joined is None:
            pieces.append(own)
        else:
            pieces[-1] = joined
    return pieces


def _joined(piece: Piece, other: Piece) -> Piece | None:
    """Return both pieces as one; None where they lie in two maps or are too large together."""
    if piece.map_index != other.map_index:
        return None
    window = piece.window.around(other.window)
    rows = slice(piece.rows.start, other.rows.stop)
    if (rows.stop - rows.start) * window.cells > MOST_NUMBERS:
        return None
    return piece._replace(rows=rows, window=window)
