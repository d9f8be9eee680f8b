"""Keys of earlier results: which of many keys are known, and in which row.

Before: `file_state.py`. After: caches that keep a result per file and read only changed files.
"""

from __future__ import annotations

import hashlib

import numpy as np

_KEY_BYTES = 16
_NO_KEY = bytes(_KEY_BYTES)


def key_of(state: bytes | None) -> bytes:
    """Return the key of a state, 16 bytes; zeros for None, which are never found."""
    if state is None:
        return _NO_KEY
    return hashlib.blake2b(state, digest_size=_KEY_BYTES).digest()


def keys_of(keys: list[bytes]) -> np.ndarray:
    """Return N keys as an array, (N, 2) int64."""
    return np.frombuffer(b"".join(keys), np.int64).reshape(-1, 2)


class KnownKeys:
    """Keys, (K, 2) int64, in any order; K may be 0."""

    def __init__(self, keys: np.ndarray):
        self._keys = keys
        self._order = np.argsort(keys[:, 0], kind="stable")
        self._ascending = keys[self._order, 0]

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the row of each key (N, 2) among the known ones, (N,) int64; -1 for none."""
        if not len(self._keys):
            return np.full(len(keys), -1)
        place = np.searchsorted(self._ascending, keys[:, 0]).clip(max=len(self._order) - 1)
        rows = self._order[place]
        # Of two keys with one first half, the second is not found.
        same = (self._keys[rows] == keys).all(axis=1) & keys.any(axis=1)
        return np.where(same, rows, -1)
