"""Which masks are computed together: positives of one image, and the window that they lie in.

As the assignment it depends only on targets and is made in NumPy on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from backend.checks import CPU
from models.heads.anchor.assign import Assignment
from utils.boxes import cxcywh_to_xyxy
from utils.data.loading.batch import TargetMasks, Targets

# Numbers of a piece on a GPU: masks times the cells of their window, unless one object has more.
MOST_NUMBERS = 2**22


class Window(NamedTuple):
    """Cells of a map, from the first to before the end."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def cells(self) -> int:
        return (self.bottom - self.top) * (self.right - self.left)

    def slices(self, top: int = 0, left: int = 0) -> tuple[slice, slice]:
        """Return its rows and columns in a map of which these are the first."""
        rows = slice(self.top - top, self.bottom - top)
        return rows, slice(self.left - left, self.right - left)

    def around(self, other: Window) -> Window:
        """Return the smallest window that holds both."""
        top, left = map(min, self[:2], other[:2])
        return Window(top, left, *map(max, self[2:], other[2:]))


class Piece(NamedTuple):
    """Positives of O objects of one image."""

    image: int
    rows: slice
    objects: tuple[int, ...]  # among the targets
    window: Window  # of all their boxes

    @property
    def numbers(self) -> int:
        return (self.rows.stop - self.rows.start) * self.window.cells


class MaskPieces(NamedTuple):
    """The K positives whose boxes hold a cell, piece by piece."""

    pieces: Sequence[Piece]
    order: np.ndarray  # (K,) int64, among the positives of all levels, level by level
    which: np.ndarray  # (K,) int64, among the objects of the piece
    weights: np.ndarray  # (K,) float64: of each cell in the box of the object
    # (2, N) uint8: of each piece O * cells numbers, which are 1 where the object is, and where
    # its box is.
    cells: np.ndarray


def pieces_of(
    assignments: Sequence[Assignment], targets: Targets, size: tuple[int, int], device: str
) -> MaskPieces:
    """Return all positives, ordered so that those of a piece lie side by side.

    A positive weighs 1 / the positives of its image and level, over the area of its box. On a CPU
    each object has its own piece: what is saved is the cells of windows outside of boxes. A GPU
    computes many in the time of one.

    Args:
        targets: with masks, in maps of any size; without positives there may be none.
        size: (height, width) of the prototypes.
    """
    target = np.concatenate([level.target_index for level in assignments])
    if not len(target):
        return MaskPieces((), target, target, np.zeros(0), np.zeros((2, 0), np.uint8))
    assert targets.masks is not None, "objects without masks"
    windows = box_windows(targets.boxes_cxcywh_norm, size)
    image = targets.image_index[target]
    order = np.lexsort((target, windows[target, 0], image))
    order = order[np.all(windows[:, 2:] > windows[:, :2], axis=1)[target[order]]]
    areas = targets.boxes_cxcywh_norm[:, 2:].astype(np.float64).prod(axis=1) * np.prod(size)
    weights = np.concatenate([1 / _in_its_image(level) for level in assignments]) / areas[target]
    target = target[order]
    pieces = _join(image[order], target, windows, 0 if device == CPU else MOST_NUMBERS)
    cells = _cells(pieces, windows, resized(targets.masks, size))
    return MaskPieces(pieces, order, _which(pieces, target), weights[order], cells)


def box_windows(boxes_cxcywh_norm: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the cells whose corner lies in each box, (T, 4) int64, as `Window`; some are empty."""
    height, width = size
    edges = cxcywh_to_xyxy(boxes_cxcywh_norm * np.array([width, height, width, height], np.float32))
    edges = np.clip(np.ceil(edges), 0, [width, height, width, height])
    return edges[:, [1, 0, 3, 2]].astype(np.int64)


def resized(masks: TargetMasks, size: tuple[int, int]) -> TargetMasks:
    """Return masks in another size, of each cell the value at its top and left."""
    height, width = masks.maps.shape[1:]
    if (height, width) == size:
        return masks
    rows = np.arange(size[0]) * height // size[0]
    maps = masks.maps[:, rows[:, None], np.arange(size[1]) * width // size[1]]
    return masks._replace(maps=maps)


def _in_its_image(level: Assignment) -> np.ndarray:
    """Return how many positives the image of each has at the level, (P,)."""
    return np.bincount(level.image_index)[level.image_index]


def _join(
    image: np.ndarray, target: np.ndarray, windows: np.ndarray, most_numbers: int
) -> list[Piece]:
    """Join objects of an image, of which the positives lie side by side."""
    pieces: list[Piece] = []
    starts = np.flatnonzero(np.diff(target, prepend=-1)).tolist()
    ends = (np.flatnonzero(np.diff(target, append=-1)) + 1).tolist()
    for start, end in zip(starts, ends, strict=True):
        own = int(target[start])
        piece = Piece(int(image[start]), slice(start, end), (own,), Window(*windows[own].tolist()))
        joined = _joined(pieces[-1], piece) if pieces else piece
        if pieces and joined.image == piece.image and joined.numbers <= most_numbers:
            pieces[-1] = joined
        else:
            pieces.append(piece)
    return pieces


def _joined(piece: Piece, other: Piece) -> Piece:
    return Piece(
        piece.image,
        slice(piece.rows.start, other.rows.stop),
        piece.objects + other.objects,
        piece.window.around(other.window),
    )


def _which(pieces: Sequence[Piece], target: np.ndarray) -> np.ndarray:
    """Return where the object of each positive stands in its piece, (K,) int64."""
    which = np.zeros_like(target)
    for piece in pieces:
        which[piece.rows] = np.cumsum(np.diff(target[piece.rows], prepend=piece.objects[0]) != 0)
    return which


def _cells(pieces: Sequence[Piece], windows: np.ndarray, masks: TargetMasks) -> np.ndarray:
    """Return `MaskPieces.cells`."""
    parts = [np.zeros((2, 0), np.uint8)]
    for piece in pieces:
        top, left, bottom, right = piece.window
        part = np.zeros((2, len(piece.objects), bottom - top, right - left), np.uint8)
        for place, index in enumerate(piece.objects):
            own = Window(*windows[index].tolist())
            values = masks.maps[masks.map_index[index]][own.slices()]
            rows, columns = own.slices(top, left)
            inside = part[:, place, rows, columns]
            inside[0], inside[1] = values == masks.value[index], 1
        parts.append(part.reshape(2, -1))
    return np.concatenate(parts, axis=1)
