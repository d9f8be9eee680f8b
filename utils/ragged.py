"""Rows of different lengths in two arrays: numbers that travel and are stored, and many texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# A name that is no UTF-8, or that another program wrote with half a surrogate pair, comes back.
_ENCODING = "utf-8", "surrogatepass"


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Return where each of K rows begins, and where the last one ends, (K + 1,) int64."""
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def rows_of(starts: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the places starts[i] up to starts[i + 1] of each index i, one behind the other."""
    counts = np.diff(starts)[indices]
    own = starts_of(counts)
    return np.arange(own[-1]) + np.repeat(starts[indices] - own[:-1], counts)


class Ragged(NamedTuple):
    """K rows of any number of values each, one behind the other."""

    values: np.ndarray  # (P,)
    lengths: np.ndarray  # (K,) int64, which add up to P

    @staticmethod
    def of(rows: Sequence[np.ndarray], dtype: type) -> Ragged:
        """Return rows, each (N,), in this dtype."""
        lengths = np.array([len(row) for row in rows], np.int64)
        return Ragged(np.concatenate([np.zeros(0, dtype), *rows]).astype(dtype), lengths)

    @property
    def num_rows(self) -> int:
        """How many rows there are, K; `len` is that of the tuple."""
        return len(self.lengths)

    def rows(self) -> list[np.ndarray]:
        """Return all rows, as views."""
        return np.split(self.values, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []

    def split(self, counts: Sequence[int]) -> list[Ragged]:
        """Return groups of so many rows, one behind the other; views."""
        ends = np.cumsum(counts, dtype=np.int64)[:-1]
        values = np.split(self.values, starts_of(self.lengths)[ends])
        groups = zip(values, np.split(self.lengths, ends), strict=True)
        return [Ragged(*group) for group in groups][: len(counts)]

    def take(self, rows: np.ndarray) -> Ragged:
        """Return some rows: their indices, in any order, or a (K,) bool."""
        chosen = np.arange(len(self.lengths))[rows]
        places = rows_of(starts_of(self.lengths), chosen)
        return Ragged(self.values[places], self.lengths[chosen])


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class Texts:
    """N texts in UTF-8, one behind the other."""

    content: np.ndarray  # (B,) uint8
    starts: np.ndarray  # (N + 1,) int64: text i is content[starts[i] : starts[i + 1]]

    @staticmethod
    def of(texts: Iterable[str]) -> Texts:
        """Return these texts, which are read once."""
        content, lengths = bytearray(), []
        for text in texts:
            encoded = text.encode(*_ENCODING)
            content += encoded
            lengths.append(len(encoded))
        return Texts(np.frombuffer(bytes(content), np.uint8), starts_of(np.array(lengths)))

    @property
    def lengths(self) -> np.ndarray:
        """The bytes of each text, (N,) int64."""
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
        """Return the texts of some indices, in any order."""
        starts = starts_of(self.lengths[indices])
        return Texts(self.content[rows_of(self.starts, indices)], starts)
