"""Scan a dataset: in threads and shards, cached between runs until one of its files changes."""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from typing import NamedTuple, TypeVar

import numpy as np

from duet.utils.errors import DatasetError
from duet.utils.files.array_cache import Arrays, read_arrays, version_of, write_arrays
from duet.utils.processes import watchdog
from duet.utils.processes.world import World
from duet.utils.progress import Progress

_PACKAGES = "pillow", "pi-heif"  # decoders of images; without the latter, HEIC images are left out
FEWEST_IMAGES = 500  # fewer are scanned as fast as a cache file is read
_READERS = (
    *(f"utils/data/{room}/**/*.py" for room in ("sources", "formats", "records", "image", "masks")),
    "utils/files/*.py",
    "utils/geometry/*.py",
    "utils/*.py",
)
_MOST_THREADS = 16
_PIECE = 64  # items that a thread takes at a time

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Part = TypeVar("_Part")


class Memory(NamedTuple):
    kind: str
    name: str  # hash of the settings that the arrays depend on

    @staticmethod
    def of(kind: str, *settings: object) -> Memory:
        """Return the memory of a kind for these settings, which must have a full repr."""
        text = repr(settings).encode("utf-8", "surrogatepass")
        return Memory(kind, hashlib.blake2b(text, digest_size=16).hexdigest())

    def recall(
        self,
        images: Sequence[_Item],
        state: Callable[[_Item, int], bytes | None],
        is_old: Callable[[Arrays], bool],
        scan: Callable[[], Arrays],
        world: World,
    ) -> Arrays:
        """Return the cached scan, or a new one if an image has changed; the same on all ranks.

        One rank per machine writes the file; if it is missing on any machine, all ranks scan.

        Args:
            images: the same on all ranks.
            state: returns an image's state, given the current time in ns; None if a later change
                could go unnoticed.
            is_old: returns whether an image that a cached scan could not use is usable now.
            scan: reads the images, each rank a shard.
        """
        version = version_of_readers() + _state_of_all(images, state, world)
        kept = read_arrays(self.kind, self.name, version) if len(images) >= FEWEST_IMAGES else None
        if kept is not None and is_old(kept):
            kept = None
        is_kept = world.all_gather(np.array([kept is not None], np.int64))
        if kept is not None and np.concatenate(is_kept).all():
            return kept
        found = scan()
        if world.process.local_rank == 0 and len(images) >= FEWEST_IMAGES:
            write_arrays(self.kind, self.name, version, found)
        return found


def version_of_readers() -> bytes:
    """Return a version of all code and packages that read images and labels."""
    packages = [f"{name} {x.version}" for name in _PACKAGES for x in distributions(name=name)]
    return version_of(*_READERS) + " ".join(packages).encode()


def _state_of_all(
    images: Sequence[_Item], state: Callable[[_Item, int], bytes | None], world: World
) -> bytes:
    """Return a hash of all images' states, the same for any number of ranks.

    It is new each time if a later change of an image could go unnoticed.
    """
    now_ns = time.time_ns()

    def hash_of(index: int) -> int:
        found = state(images[index], now_ns)
        text = f"unsure {now_ns}".encode() if found is None else found
        digest = hashlib.blake2b(b"%d %s" % (index, text), digest_size=7).digest()
        return int.from_bytes(digest, "big")

    with watchdog.phase("looking for changed files"), ThreadPoolExecutor(_MOST_THREADS) as pool:
        mine = sum(map(sum, _in_pieces(pool, hash_of, world.process.shard(range(len(images))))))
    sums = world.all_gather(np.array([mine % 2**62], np.int64))
    return str(sum(int(one[0]) for one in sums) % 2**62).encode()


def scan(
    work: str,
    items: Sequence[_Item],
    read: Callable[[_Item], _Result],
    join: Callable[[list[_Result]], _Part],
    most_threads: int = _MOST_THREADS,
) -> list[_Part]:
    """Read items in several threads; return their results in order, joined in parts.

    work: description for the progress bar.
    """
    threads = min(most_threads, 2 * (os.cpu_count() or 1))
    with (
        watchdog.phase(work),
        Progress(len(items), work, "images") as shown,
        ThreadPoolExecutor(threads) as pool,
    ):

        def read_one(item: _Item) -> _Result:
            watchdog.progress()
            result = read(item)
            shown.update()
            return result

        return list(map(join, _in_pieces(pool, read_one, items)))


def scan_shards(
    work: str,
    items: Sequence[_Item],
    read: Callable[[_Item], _Result],
    join: Callable[[list[_Result]], Arrays],
    world: World,
    most_threads: int = _MOST_THREADS,
) -> Arrays:
    """Read a shard of the items on each rank; return the arrays of all, on every rank."""
    parts = [join([]), *scan(work, world.process.shard(items), read, join, most_threads)]
    mine = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {name: np.concatenate(world.all_gather(array)) for name, array in mine.items()}


def _in_pieces(
    pool: ThreadPoolExecutor, work: Callable[[_Item], _Result], items: Sequence[_Item]
) -> Iterator[list[_Result]]:
    """Apply the work to each item; yield the results in order, several at a time."""

    def work_on(start: int) -> list[_Result]:
        return list(map(work, items[start : start + _PIECE]))

    return pool.map(work_on, range(0, len(items), _PIECE))


def require_same_names(names: Sequence[str], world: World) -> None:
    """Raise DatasetError unless all ranks have images of these names, perhaps in other folders."""
    checksum = zlib.crc32("".join(f"{name}\0" for name in names).encode("utf-8", "surrogatepass"))
    listed = np.concatenate(world.all_gather(np.array([[len(names), checksum]], np.int64)))
    if (listed != listed[0]).any():
        raise DatasetError(
            f"the processes found different images, {listed[:, 0].tolist()} of them; give all "
            "machines the same files, and do not change them during startup"
        )
