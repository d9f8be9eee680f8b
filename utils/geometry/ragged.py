"""Rows of different lengths in two arrays: numbers to send or store, and many texts."""

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
        """The number of rows, K; `len` is that of the tuple."""
        return len(self.lengths)

    def rows(self) -> list[np.ndarray]:
        """Return all rows, as views."""
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
        """Return the texts at these indices, in any order."""
        starts = starts_of(self.lengths[indices])
        return Texts(self.content[rows_of(self.starts, indices)], starts)
