"""The same work for each of a million images, in threads, with few results in memory.

Before: `labels.py` and `fingerprints.py`, which say what the work is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

import numpy as np

from utils.files.known_keys import KnownKeys, key_of, keys_of

_BLOCK = 4096  # indices whose results are objects at a time
_PIECE = 64  # indices that a thread takes at a time

_Result = TypeVar("_Result")


def in_blocks(
    pool: ThreadPoolExecutor, work: Callable[[int], _Result], indices: np.ndarray
) -> Iterator[list[_Result]]:
    """Do the work for each index; yield the results of a few thousand at a time, in order."""

    def work_on(piece: list[int]) -> list[_Result]:
        return [work(index) for index in piece]

    for start in range(0, len(indices), _BLOCK):
        block = indices[start : start + _BLOCK].tolist()
        pieces = [block[first : first + _PIECE] for first in range(0, len(block), _PIECE)]
        yield list(chain.from_iterable(pool.map(work_on, pieces)))


def look_up(
    pool: ThreadPoolExecutor,
    state: Callable[[int, int], bytes | None],
    number: int,
    known: KnownKeys,
    progress: Callable[[], None],
) -> tuple[np.ndarray, np.ndarray]:
    """Return keys of the states of a number of images, and which of them are known.

    Args:
        state: of the index of an image, and of the time in ns before it was looked at.
        progress: called for each one that is known.

    Returns:
        The keys, (N, 2) int64, and the row of each among the known ones, (N,) int64, or -1.
    """
    now_ns = time.time_ns()
    keys, rows = [keys_of([])], [np.zeros(0, np.int64)]
    for block in in_blocks(pool, lambda index: key_of(state(index, now_ns)), np.arange(number)):
        keys.append(keys_of(block))
        rows.append(known.find(keys[-1]))
        for _ in range(np.count_nonzero(rows[-1] >= 0)):
            progress()
    return np.concatenate(keys), np.concatenate(rows)
