"""Where the label of each box goes: if possible, on no other label and on no corner of a box.

Before: `annotate.py` has the boxes and the sizes of the labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

# Places are noted in cells, which for a label of up to 31 pixels are pixels.
CELLS_IN_HEIGHT = 16
EXTRA_ROWS = 3  # how far a label may move from its box, in heights of a label
COST_OF_A_ROW = 0.5  # in corners of boxes that it hides
COST_OF_HIDDEN_TEXT = 100  # of all of a label: it rather hides a corner than others' text

MAX_COVERED_IMAGE = 1 / 4  # labels hide no more of it
MAX_COVERED_LABEL = 1 / 3  # with more hidden it is not read
COVERABLE_BOX = 1 / 4  # of its own box, without being moved


class Rectangle(NamedTuple):
    """A part of an image, pixels; the right and the bottom one are no longer in it."""

    left: int
    top: int
    right: int
    bottom: int


class LabelPlacer:
    """Finds a place for each label in turn; earlier labels choose first."""

    def __init__(
        self, image_size: tuple[int, int], boxes: Sequence[Rectangle], label_height: int
    ) -> None:
        """Begin with an image (height, width), all boxes in it and the height of every label."""
        self._height, self._width = image_size
        self._label_height = label_height
        self._cell = max(label_height // CELLS_IN_HEIGHT, 1)
        cells = (self._height // self._cell + 1, self._width // self._cell + 1)
        self._covered = np.zeros(cells, bool)
        self._corners = np.zeros(cells, bool)
        left, top, right, bottom = np.array(boxes, int).reshape(-1, 4).T
        for x in (left, right - 1):
            for y in (top, bottom - 1):
                self._corners[y // self._cell, x // self._cell] = True
        self._cells_left = round(MAX_COVERED_IMAGE * cells[0] * cells[1])

    @property
    def is_full(self) -> bool:
        """Whether labels hide as much of the image as they may."""
        return self._cells_left <= 0

    def place(self, box: Rectangle, width: int) -> Rectangle | None:
        """Return where the label of a box goes; None if it would lie under others.

        Above the box, else inside, else below, else moved; of places that all hide something, the
        one that hides least.

        Args:
            box: with its outline, in the image.
            width: of the label, pixels; like its height not more than the image's.
        """
        best, least = None, np.inf
        for label, least_here in self._candidates(box, width):
            if least <= least_here:
                break
            cost = least_here + self._cost(label, box)
            if cost < least:
                best, least = label, cost
        if best:
            self._cover(best)
        return best

    def _candidates(self, box: Rectangle, width: int) -> Iterator[tuple[Rectangle, float]]:
        """Yield the places in the image for a label, the best first, and what they cost at least.

        At the box the label begins where the box does, then it ends there, then it stands beside
        it; then it moves away.
        """
        for row in range(1 + EXTRA_ROWS):
            for left, top in self._corners_at(box, width, row):
                label = Rectangle(left, top, left + width, top + self._label_height)
                if self._holds(label):
                    yield label, row * COST_OF_A_ROW

    def _corners_at(self, box: Rectangle, width: int, row: int) -> Iterator[tuple[int, int]]:
        """Yield (left, top) of the places that are so many labels away from the box's edges."""
        height = self._label_height
        above, inside, below = (
            box.top - (row + 1) * height, box.top + row * height, box.bottom + row * height
        )  # fmt: skip
        if row == 0:  # there is always a place: this one, though the box may be low
            inside = min(inside, self._height - height)
        is_inside = row == 0 or inside + height <= box.bottom
        for left in (box.left, box.right - width):
            left = min(max(left, 0), self._width - width)
            yield left, above
            if is_inside:
                yield left, inside
            yield left, below
        if row == 0:
            yield box.right, box.top
            yield box.left - width, box.top

    def _holds(self, label: Rectangle) -> bool:
        inside = label.right <= self._width and label.bottom <= self._height
        return inside and label.left >= 0 and label.top >= 0

    def _cost(self, label: Rectangle, box: Rectangle) -> float:
        """Return 0 for a place where a label hides nothing that counts; infinity for a bad one."""
        part = self._cells(label)
        covered = np.count_nonzero(self._covered[part]) / self._covered[part].size
        if covered > MAX_COVERED_LABEL:
            return np.inf
        corners = np.count_nonzero(self._corners[part]) - self._own_corners(label, box)
        of_its_box = max(_overlap(label, box) / _area(box) - COVERABLE_BOX, 0)
        return COST_OF_HIDDEN_TEXT * covered + corners + of_its_box

    def _own_corners(self, label: Rectangle, box: Rectangle) -> int:
        """Return how many corners of its own box a label hides; inside the box that is allowed."""
        left, top, right, bottom = (edge // self._cell for edge in label)
        columns = {x // self._cell for x in (box.left, box.right - 1)}
        rows = {y // self._cell for y in (box.top, box.bottom - 1)}
        return sum(left <= x < right for x in columns) * sum(top <= y < bottom for y in rows)

    def _cover(self, label: Rectangle) -> None:
        part = self._covered[self._cells(label)]
        self._cells_left -= part.size - np.count_nonzero(part)
        part[:] = True

    def _cells(self, label: Rectangle) -> tuple[slice, slice]:
        """Return the rows and columns of the cells under a label; its neighbours have others."""
        left, top, right, bottom = (edge // self._cell for edge in label)
        return slice(top, bottom), slice(left, right)


def _overlap(a: Rectangle, b: Rectangle) -> int:
    width = min(a.right, b.right) - max(a.left, b.left)
    height = min(a.bottom, b.bottom) - max(a.top, b.top)
    return max(width, 0) * max(height, 0)


def _area(rectangle: Rectangle) -> int:
    return (rectangle.right - rectangle.left) * (rectangle.bottom - rectangle.top)
