"""What earlier scans found, by a key of all that the result of an image depends on.

Before: `label_cache.py` reads it. After: `labels.py` scans the images that are not among it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from utils.data.sources.scan_arrays import ScanArrays, arrays_of

_KEY_BYTES = 16
_NO_KEY = bytes(_KEY_BYTES)


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class KnownScans:
    """The results of images that were scanned before."""

    arrays: ScanArrays

    @staticmethod
    def key(state: bytes | None) -> bytes:
        """Return the key of an image's state, 16 bytes; zeros for None, which is never found."""
        if state is None:
            return _NO_KEY
        return hashlib.blake2b(state, digest_size=_KEY_BYTES).digest()

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the row of each key (N, 2) among the known ones, (N,) int64; -1 for none."""
        if not len(self.arrays.keys):
            return np.full(len(keys), -1)
        order, ascending = self._by_key
        place = np.searchsorted(ascending, keys[:, 0]).clip(max=len(order) - 1)
        rows = order[place]
        # Of two keys with one first half, the second is scanned again.
        same = (self.arrays.keys[rows] == keys).all(axis=1) & keys.any(axis=1)
        return np.where(same, rows, -1)

    @cached_property
    def _by_key(self) -> tuple[np.ndarray, np.ndarray]:
        first = self.arrays.keys[:, 0]
        order = np.argsort(first, kind="stable")
        return order, first[order]


NOTHING_KNOWN = KnownScans(arrays_of([]))
