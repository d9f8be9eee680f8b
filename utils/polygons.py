"""Outlines of objects, of any number of points each, in two arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from duet.utils.ragged import rows_of
from duet.utils.ragged import starts_of as starts_of


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class Polygons:
    """The outlines of M objects, one behind the other; an object without one has no points.

    The last point of an outline is joined to its first. Where a class or function takes None, no
    object has an outline.
    """

    points_xy: np.ndarray  # (P, 2) floats
    starts: np.ndarray  # (M + 1,) int64: those of object i are points_xy[starts[i] : starts[i + 1]]

    def __len__(self) -> int:
        """Return the number of objects, M."""
        return len(self.starts) - 1

    @property
    def num_points(self) -> np.ndarray:
        """How many points each object has, (M,) int64."""
        return np.diff(self.starts)

    def outline(self, index: int) -> np.ndarray:
        """Return the points of an object, a view (K, 2)."""
        return self.points_xy[self.starts[index] : self.starts[index + 1]]

    def range(self, first: int, end: int) -> Polygons | None:
        """Return the objects from `first` up to `end`; views, or None without any point."""
        starts = self.starts[first : end + 1]
        if starts[0] == starts[-1]:
            return None
        return Polygons(self.points_xy[starts[0] : starts[-1]], starts - starts[0])

    def select(self, objects: np.ndarray) -> Polygons:
        """Return some of the objects: their indices, in any order, or an (M,) bool."""
        chosen = np.arange(len(self))[objects]
        points = self.points_xy[rows_of(self.starts, chosen)]
        return Polygons(points, starts_of(self.num_points[chosen]))

    def moved(self, scale_xy: Sequence[float], offset_xy: Sequence[float] = (0, 0)) -> Polygons:
        """Multiply x and y by their factors, then add their offsets; float64."""
        return Polygons(self.points_xy * np.array(scale_xy) + np.array(offset_xy), self.starts)

    def mirrored(self, axis: int, length: float) -> Polygons:
        """Mirror at half of a length: x on axis 0, y on axis 1."""
        points = self.points_xy.copy()
        points[:, axis] = length - points[:, axis]
        return Polygons(points, self.starts)


def without_outlines(num_objects: int) -> Polygons:
    """Return so many objects, none of which has a point, float32."""
    return Polygons(np.zeros((0, 2), np.float32), np.zeros(num_objects + 1, np.int64))


def join_polygons(parts: Sequence[tuple[Polygons | None, int]]) -> Polygons | None:
    """Put sets of objects one behind the other.

    Args:
        parts: each with its number of objects, none of which has an outline in a None.

    Returns:
        All of them; None if all are None.
    """
    known = [polygons for polygons, _ in parts if polygons is not None]
    if not known:
        return None
    counts = [
        np.zeros(num_objects, np.int64) if polygons is None else polygons.num_points
        for polygons, num_objects in parts
    ]
    points = np.concatenate([polygons.points_xy for polygons in known])
    return Polygons(points, starts_of(np.concatenate(counts)))


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
