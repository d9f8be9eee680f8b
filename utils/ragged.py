"""Rows of different lengths in two arrays, for what must travel and be stored as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


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

    def row(self, index: int) -> np.ndarray:
        """Return one row, a view (N,)."""
        end = int(self.lengths[: index + 1].sum())
        return self.values[end - int(self.lengths[index]) : end]

    def rows(self) -> list[np.ndarray]:
        """Return all rows, as views."""
        return np.split(self.values, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []

    def split(self, counts: Sequence[int]) -> list[Ragged]:
        """Return groups of so many rows, one behind the other; views."""
        ends = np.cumsum(counts, dtype=np.int64)[:-1]
        starts = np.concatenate(([0], np.cumsum(self.lengths)))
        groups = np.split(self.values, starts[ends]), np.split(self.lengths, ends)
        return [Ragged(*group) for group in zip(*groups, strict=True)][: len(counts)]

    def take(self, rows: np.ndarray) -> Ragged:
        """Return some rows: their indices, in any order, or a (K,) bool."""
        chosen = np.arange(len(self.lengths))[rows]
        starts, lengths = np.cumsum(self.lengths) - self.lengths, self.lengths[chosen]
        before = np.cumsum(lengths) - lengths
        index = np.arange(int(lengths.sum())) + np.repeat(starts[chosen] - before, lengths)
        return Ragged(self.values[index], lengths)
