"""Rows of different lengths in two arrays: numbers to send or store, texts, and outlines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Round-trips names that are not UTF-8 or contain a lone surrogate.
_ENCODING = "utf-8", "surrogatepass"


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Return the start of each of K rows, and the end of the last, (K + 1,) int64."""
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def rows_of(starts: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Concatenate range(starts[i], starts[i + 1]) over the indices."""
    counts = np.diff(starts)[indices]
    own = starts_of(counts)
    return np.arange(own[-1]) + np.repeat(starts[indices] - own[:-1], counts)


class Ragged(NamedTuple):
    """K rows of any length, concatenated."""

    values: np.ndarray  # (P,)
    lengths: np.ndarray  # (K,) int64, sum P

    @staticmethod
    def of(rows: Sequence[np.ndarray], dtype: type) -> Ragged:
        """Build from rows (N,), cast to this dtype."""
        lengths = np.array([len(row) for row in rows], np.int64)
        return Ragged(np.concatenate([np.zeros(0, dtype), *rows]).astype(dtype), lengths)

    @property
    def num_rows(self) -> int:
        """The number of rows, K; `len` counts the tuple's fields."""
        return len(self.lengths)

    def rows(self) -> list[np.ndarray]:
        return np.split(self.values, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []

    def split(self, counts: Sequence[int]) -> list[Ragged]:
        """Split into consecutive groups of these numbers of rows; views."""
        ends = np.cumsum(counts, dtype=np.int64)[:-1]
        values = np.split(self.values, starts_of(self.lengths)[ends])
        groups = zip(values, np.split(self.lengths, ends), strict=True)
        return [Ragged(*group) for group in groups][: len(counts)]

    def take(self, rows: np.ndarray) -> Ragged:
        """Return the selected rows, by indices in any order or a (K,) bool mask."""
        chosen = np.arange(len(self.lengths))[rows]
        places = rows_of(starts_of(self.lengths), chosen)
        return Ragged(self.values[places], self.lengths[chosen])


@dataclass(frozen=True, eq=False)  # == on arrays is ambiguous
class Texts:
    """N texts in UTF-8, concatenated."""

    content: np.ndarray  # (B,) uint8
    starts: np.ndarray  # (N + 1,) int64: text i is content[starts[i] : starts[i + 1]]

    @staticmethod
    def of(texts: Iterable[str]) -> Texts:
        """Build from texts; iterates once."""
        content, lengths = bytearray(), []
        for text in texts:
            encoded = text.encode(*_ENCODING)
            content += encoded
            lengths.append(len(encoded))
        return Texts(np.frombuffer(bytes(content), np.uint8), starts_of(np.array(lengths)))

    @property
    def lengths(self) -> np.ndarray:
        """The length of each text in bytes, (N,) int64."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> str:
        place = range(len(self))[index]
        first, end = self.starts[place : place + 2].tolist()
        return self.content[first:end].tobytes().decode(*_ENCODING)

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def select(self, indices: np.ndarray) -> Texts:
        starts = starts_of(self.lengths[indices])
        return Texts(self.content[rows_of(self.starts, indices)], starts)


@dataclass(frozen=True, eq=False)  # == on arrays is ambiguous
class Polygons:
    """The outlines of M objects, concatenated; an object without an outline has no points.

    Outlines are closed. None in place of Polygons: no object has an outline.
    """

    points_xy: np.ndarray  # (P, 2) floats
    starts: np.ndarray  # (M + 1,) int64: object i has points_xy[starts[i] : starts[i + 1]]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def num_points(self) -> np.ndarray:
        """The number of points per object, (M,) int64."""
        return np.diff(self.starts)

    def outline(self, index: int) -> np.ndarray:
        return self.points_xy[self.starts[index] : self.starts[index + 1]]

    def range(self, first: int, end: int) -> Polygons | None:
        """Return the objects from `first` up to `end` as views; None if they have no points."""
        starts = self.starts[first : end + 1]
        if starts[0] == starts[-1]:
            return None
        return Polygons(self.points_xy[starts[0] : starts[-1]], starts - starts[0])

    def select(self, objects: np.ndarray) -> Polygons:
        chosen = np.arange(len(self))[objects]
        points = self.points_xy[rows_of(self.starts, chosen)]
        return Polygons(points, starts_of(self.num_points[chosen]))

    def moved(self, scale_xy: Sequence[float], offset_xy: Sequence[float] = (0, 0)) -> Polygons:
        """Scale x and y, then add the offsets; float64."""
        return Polygons(self.points_xy * np.array(scale_xy) + np.array(offset_xy), self.starts)

    def mirrored(self, axis: int, length: float) -> Polygons:
        """Mirror within a length: x for axis 0, y for axis 1."""
        points = self.points_xy.copy()
        points[:, axis] = length - points[:, axis]
        return Polygons(points, self.starts)


def without_outlines(num_objects: int) -> Polygons:
    """Return this number of objects without points, float32."""
    return Polygons(np.zeros((0, 2), np.float32), np.zeros(num_objects + 1, np.int64))


def join_polygons(parts: Sequence[tuple[Polygons | None, int]]) -> Polygons | None:
    """Concatenate sets of objects, each with its number; None if none has an outline."""
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
    """Join several outlines (N, 2), including holes, into one that encloses the same, (K, 2).

    Lines traversed in both directions connect the parts. Takes linear time.
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
        back += [ring[:1], ring[turn:]]  # reversed: the rest after `leave`, then the entry
        entry = _nearest(following, part[leave])
    last = np.roll(parts[-1], -entry, axis=0)
    return np.concatenate([*there, last, last[:1], *reversed(back)])[:-1]


def _nearest(points_xy: np.ndarray, place_xy: np.ndarray) -> int:
    with np.errstate(invalid="ignore", over="ignore"):  # for NaN any point will do
        return int(((points_xy - place_xy) ** 2).sum(1).argmin())
