"""What was read of a dataset, kept between runs: only what has changed is read again."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from duet.utils.array_cache import Arrays, find_keys, key_of, read_arrays, version_of, write_arrays
from duet.utils.processes import watchdog
from duet.utils.progress import Progress

_PACKAGES = "pillow", "pi-heif"  # that read images; without the latter HEIC images are left out
FEWEST_IMAGES = 500  # fewer are read as soon as a file of them is
_READERS = (
    *(f"utils/data/{room}/**/*.py" for room in ("sources", "formats", "records", "image")),
    "utils/*.py",
)
_PIECE = 64  # indices that a thread takes at a time

_Result = TypeVar("_Result")
_Part = TypeVar("_Part")


class Memory(NamedTuple):
    """A file of arrays in the user's cache folder."""

    kind: str
    name: str  # a hash of all that the arrays depend on, but for the state of files

    @staticmethod
    def of(kind: str, *settings: object) -> Memory:
        """Return the memory of a kind for these settings, which must have a full repr."""
        text = repr(settings).encode("utf-8", "surrogatepass")
        return Memory(kind, hashlib.blake2b(text, digest_size=16).hexdigest())

    def read(self) -> dict[str, np.ndarray] | None:
        """Return what was written; None if there is nothing."""
        return read_arrays(self.kind, self.name, _version())

    def write(self, arrays: Arrays, num_images: int) -> None:
        """Keep arrays of many images."""
        if num_images >= FEWEST_IMAGES:
            write_arrays(self.kind, self.name, _version(), arrays)


def _version() -> bytes:
    """Return what changes with all that reads images and labels, packages among it."""
    packages = [f"{name} {x.version}" for name in _PACKAGES for x in distributions(name=name)]
    return version_of(*_READERS) + " ".join(packages).encode()


def scan(
    work: str,
    number: int,
    state: Callable[[int, int], bytes | None],
    read: Callable[[int], _Result],
    join: Callable[[list[_Result]], _Part],
    known_keys: np.ndarray,
    most_threads: int,
) -> tuple[np.ndarray, np.ndarray, list[_Part]]:
    """Read what is not known of a number of images, each by its index.

    Args:
        work: what is done, for the progress.
        state: of an image, and of the time in ns before it was looked at; None if a later change
            may not show.
        read: called from several threads.
        join: makes a few arrays of the results of some images.

    Returns:
        The keys of the states, (N,) int64; the row of each among the known keys, (N,) int64, or -1;
        what was read of these others, some images to a part, in order.
    """
    now_ns = time.time_ns()
    threads = min(most_threads, 2 * (os.cpu_count() or 1))
    with watchdog.phase(work), ThreadPoolExecutor(threads) as pool:
        pieces = _in_pieces(pool, lambda index: key_of(state(index, now_ns)), np.arange(number))
        keys = np.fromiter(chain.from_iterable(pieces), np.int64)
        rows = find_keys(keys, known_keys)
        missing = np.flatnonzero(rows < 0)
        with Progress(number, work, "images", number - len(missing)) as shown:

            def read_one(index: int) -> _Result:
                watchdog.progress()
                result = read(index)
                shown.update()
                return result

            return keys, rows, list(map(join, _in_pieces(pool, read_one, missing)))


def _in_pieces(
    pool: ThreadPoolExecutor, work: Callable[[int], _Result], indices: np.ndarray
) -> Iterator[list[_Result]]:
    """Do the work for each index; yield the results of some at a time, in order."""

    def work_on(start: int) -> list[_Result]:
        return [work(index) for index in indices[start : start + _PIECE].tolist()]

    return pool.map(work_on, range(0, len(indices), _PIECE))
