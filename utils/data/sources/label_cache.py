"""What the scan of a split found, kept between runs: only changed images are read again."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from utils.data.sources.dataset_yaml import DatasetSpec
from utils.data.sources.scan_arrays import ScanArrays, arrays_of
from utils.files.array_cache import find_keys, key_of, read_arrays, version_of, write_arrays

KIND = "labels"
FEWEST_IMAGES = 500  # fewer are read as soon as a cache is
_PACKAGES = "pillow", "pi-heif"  # that read images
_READERS = (
    "utils/data/sources/**/*.py",
    "utils/data/formats/*.py",
    "utils/data/image/*.py",
    "utils/polygons.py",
)
_BLOCK = 4096  # indices whose results are objects at a time
_PIECE = 64  # indices that a thread takes at a time

_Result = TypeVar("_Result")


class LabelCache(NamedTuple):
    """The file of one split, by the name of all that its results depend on but the images."""

    name: str

    @staticmethod
    def of(
        dataset: DatasetSpec, split: str, fraction: float, num_classes: int, max_pixels: int
    ) -> LabelCache:
        """Return the cache of a split; `fraction` as `splits.load_split` has it."""
        entries = [*dataset.train, *dataset.val, *dataset.test]
        places = [os.path.abspath(str(entry)) for entry in entries]
        settings = places, split, dataset.train_part, fraction, num_classes, max_pixels
        digest = hashlib.blake2b(repr(settings).encode("utf-8", "surrogatepass"), digest_size=16)
        return LabelCache(digest.hexdigest())

    def read(self) -> ScanArrays:
        """Return what is known, which may be nothing."""
        kept = read_arrays(KIND, self.name, version())
        return ScanArrays(**kept) if kept else arrays_of([])

    def write(self, found: ScanArrays, known: ScanArrays | None) -> None:
        """Keep what was found, unless it is what was known."""
        is_new = known is None or not np.array_equal(found.keys, known.keys)
        if is_new and len(found.keys) >= FEWEST_IMAGES:
            write_arrays(KIND, self.name, version(), found._asdict())


def version() -> bytes:
    """Return what changes with all that reads images and labels, packages among it."""
    return version_of(*_READERS) + " ".join(map(_package_version, _PACKAGES)).encode()


def _package_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # HEIC images are left out
        return "absent"


def look_up(
    pool: ThreadPoolExecutor,
    state: Callable[[int, int], bytes | None],
    number: int,
    known_keys: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return keys of the states of a number of images, and which of them are known.

    Args:
        state: of the index of an image, and of the time in ns before it was looked at.

    Returns:
        The keys, (N,) int64, and the row of each among the known ones, (N,) int64, or -1.
    """
    now_ns = time.time_ns()
    blocks = in_blocks(pool, lambda index: key_of(state(index, now_ns)), np.arange(number))
    keys = np.fromiter(chain.from_iterable(blocks), np.int64)
    return keys, find_keys(keys, known_keys)


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
