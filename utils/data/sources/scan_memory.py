"""What was read of a dataset, kept between runs: only what has changed is read again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from utils.array_cache import Arrays, find_keys, key_of, read_arrays, version_of, write_arrays

_PACKAGES = "pillow", "pi-heif"  # that read images; without the latter HEIC images are left out
FEWEST_IMAGES = 500  # fewer are read as soon as a file of them is
_READERS = (
    "utils/data/sources/**/*.py",
    "utils/data/formats/*.py",
    "utils/data/image/*.py",
    "utils/*.py",
)
_PIECE = 64  # indices that a thread takes at a time

_Result = TypeVar("_Result")


class Memory(NamedTuple):
    """A file of arrays in the user's cache folder."""

    kind: str
    name: str  # a hash of all that the arrays depend on, but for the state of files

    @staticmethod
    def of(kind: str, *settings: object) -> Memory:
        """Return the memory of a kind for these settings, which must have a full repr."""
        text = repr(settings).encode("utf-8", "surrogatepass")
        return Memory(kind, hashlib.blake2b(text, digest_size=16).hexdigest())

    def read(self, state: bytes = b"") -> dict[str, np.ndarray] | None:
        """Return what was written in this state of the files; None if there is nothing."""
        return read_arrays(self.kind, self.name, _version() + state)

    def write(self, arrays: Arrays, num_images: int, state: bytes = b"") -> None:
        """Keep arrays of many images."""
        if num_images >= FEWEST_IMAGES:
            write_arrays(self.kind, self.name, _version() + state, arrays)


def _version() -> bytes:
    """Return what changes with all that reads images and labels, packages among it."""
    packages = [f"{name} {x.version}" for name in _PACKAGES for x in distributions(name=name)]
    return version_of(*_READERS) + " ".join(packages).encode()


def look_up(
    pool: ThreadPoolExecutor,
    state: Callable[[int, int], bytes | None],
    number: int,
    known_keys: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return keys of the states of a number of images, and which of them are known.

    Args:
        state: of the index of an image, and of the time in ns before it was looked at; None if a
            later change may not show.

    Returns:
        The keys, (N,) int64, and the row of each among the known ones, (N,) int64, or -1.
    """
    now_ns = time.time_ns()
    pieces = in_pieces(pool, lambda index: key_of(state(index, now_ns)), np.arange(number))
    keys = np.fromiter(chain.from_iterable(pieces), np.int64)
    return keys, find_keys(keys, known_keys)


def in_pieces(
    pool: ThreadPoolExecutor, work: Callable[[int], _Result], indices: np.ndarray
) -> Iterator[list[_Result]]:
    """Do the work for each index; yield the results of some at a time, in order."""

    def work_on(start: int) -> list[_Result]:
        return [work(index) for index in indices[start : start + _PIECE].tolist()]

    return pool.map(work_on, range(0, len(indices), _PIECE))
