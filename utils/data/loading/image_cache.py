"""Decoded images in memory or in a file, shared by all loader workers of a machine.

Before: `reading.py::decode`; its results are kept. After: `batches.py`, which looks here first.
"""

from __future__ import annotations

import logging
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import reduction
from pathlib import Path
from typing import Any

import numpy as np

from backend.words import count
from utils.data.loading.told_file import share_file
from utils.errors import DatasetError
from utils.processes.world import ALONE, World

_ABSENT, _PRESENT = b"\0", b"\1"
_PAGE = 4096
_MEMORY_LIMITS = Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")
_OWN_GROUPS = Path("/proc/self/cgroup")

log = logging.getLogger("data")


class ImageCache:
    """Images by sample index; the first process that needs one decodes and keeps it for all.

    The memory has no name in any file system: it cannot outlive its processes, and a disk cache
    leaves no file behind. Images beyond the limit are not kept.
    """

    def __init__(self, starts: np.ndarray, shapes: np.ndarray, kind: str, descriptor: int):
        """Map an open file; `starts` (S,) int64 bytes, -1 for none; `shapes` (S, 2) int32."""
        self._starts, self._shapes, self._kind = starts, shapes, kind
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)

    def __reduce__(self) -> tuple[Any, ...]:
        duplicate = reduction.DupFd(self._descriptor)
        return _attach, (self._starts, self._shapes, self._kind, duplicate)

    def __del__(self) -> None:
        os.close(self._descriptor)

    @property
    def extent(self) -> str:
        """How many of the samples' images lie within the limit: "all", "part" or "none"."""
        held = self._starts >= 0
        return "all" if held.all() else "part" if held.any() else "none"

    def holds(self, index: int) -> bool:
        """Return whether a sample's image lies within the limit."""
        return bool(self._starts[index] >= 0)

    def get(self, index: int, decode: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the image of a sample that `holds`, (H, W, 3) uint8; decode and keep it if absent.

        It is read-only where it was kept before.

        Raises:
            DatasetError: there is no space left to keep it.
        """
        start = int(self._starts[index])
        # By a system call, not from the mapping: what was written before the mark is then seen too.
        if os.pread(self._descriptor, 1, index) == _ABSENT:
            image = decode()
            assert image.shape == (*self._shapes[index], 3)
            # Another process may write the same bytes at the same time.
            self._write(image.tobytes(), start)
            self._write(_PRESENT, index)
            return image
        height, width = self._shapes[index].tolist()
        flat = np.frombuffer(self._memory, np.uint8, height * width * 3, offset=start)
        return flat.reshape(height, width, 3)

    def _write(self, content: bytes, start: int) -> None:
        try:
            while content:
                written = os.pwrite(self._descriptor, content, start)
                content, start = content[written:], start + written
        except OSError as error:
            raise DatasetError(
                f"--cache {self._kind}: an image cannot be kept: {error.strerror}; free some "
                "space, or leave --cache out"
            ) from error


def _attach(starts: np.ndarray, shapes: np.ndarray, kind: str, duplicate: Any) -> ImageCache:
    return ImageCache(starts, shapes, kind, duplicate.detach())


def create_cache(
    kind: str,
    sizes: Sequence[tuple[int, int]],
    fraction: float,
    split: str,
    world: World = ALONE,
) -> ImageCache:
    """Return an empty cache for images of these (height, width), and log what it will hold.

    The processes of a machine share one; the first of them makes it.

    Args:
        kind: "ram", or "disk" for a file in the folder TMPDIR, by default /var/tmp.
        sizes: of every sample's image as the loader needs it, the same in all processes.
        fraction: of the free memory or disk space: at most this much is used.
        split: the name of the images in the log line.
        world: the processes that call this together.
    """
    assert kind in ("ram", "disk")
    shapes = np.array(sizes, np.int32).reshape(-1, 2)
    limit = descriptor = 0
    if world.process.local_rank == 0:
        limit = int(fraction * (free_memory() if kind == "ram" else _free_disk()))
        starts, size = _plan(shapes, limit)
        log.info(_line(kind, split, shapes, starts, limit))
        descriptor = _open(kind, size)
    if world.process.world_size > 1:
        limit, descriptor = share_file(descriptor, limit, f"--cache {kind}", world)
    starts, _ = _plan(shapes, limit)
    return ImageCache(starts, shapes, kind, descriptor)


def _plan(shapes: np.ndarray, limit: int) -> tuple[np.ndarray, int]:
    """Return where each image starts, (S,) int64 bytes, -1 for nowhere, and the bytes of all."""
    num_bytes = _num_bytes(shapes)
    first = -(-len(shapes) // _PAGE) * _PAGE  # one byte an image says whether it is there
    fits = first + num_bytes <= limit  # else one huge image would leave no room for all after it
    ends = first + np.cumsum(np.where(fits, num_bytes, 0))
    fits &= ends <= limit
    return np.where(fits, ends - num_bytes, -1), int(ends[fits][-1]) if fits.any() else first


def _num_bytes(shapes: np.ndarray) -> np.ndarray:
    return shapes.astype(np.int64).prod(axis=1) * 3


def _line(kind: str, split: str, shapes: np.ndarray, starts: np.ndarray, limit: int) -> str:
    num_bytes, fits = _num_bytes(shapes), starts >= 0
    place = "memory" if kind == "ram" else f"a file in {_disk_folder()}"
    line = f"cache: {fits.sum()} of {count(len(fits), f'{split} image')} in {place}"
    line += f", {num_bytes[fits].sum() / 1e9:.2f} GB when all are read"
    if not fits.all():
        line += f"; all need {num_bytes.sum() / 1e9:.2f} GB, the limit is {limit / 1e9:.2f} GB of "
        line += "what is free: the others are decoded each time"
    return line


def _open(kind: str, size: int) -> int:
    if kind == "ram":
        descriptor = os.memfd_create("image-cache")
    else:
        try:
            with tempfile.TemporaryFile(dir=_disk_folder()) as file:
                descriptor = os.dup(file.fileno())
        except OSError as error:
            raise DatasetError(
                f"--cache disk: no file can be made in {_disk_folder()}: {error.strerror}; name "
                "another folder in TMPDIR"
            ) from error
    os.ftruncate(descriptor, size)
    return descriptor


def _disk_folder() -> str:
    return os.environ.get("TMPDIR") or "/var/tmp"  # /tmp is memory on some systems


def _free_disk() -> int:
    folder = _disk_folder()
    try:
        return shutil.disk_usage(folder).free
    except OSError as error:
        raise DatasetError(
            f"--cache disk: {folder}: {error.strerror}; name another folder in TMPDIR"
        ) from error


def free_memory() -> int:
    """Return the bytes of memory that this process may still take, within a container's limit."""
    try:
        lines = _MEMORY.read_text().splitlines()
        (available,) = (int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"--cache ram: {_MEMORY} does not tell how much memory is free ({error}); mount /proc, "
            "take --cache disk, or leave --cache out"
        ) from error
    return max(0, min([available, *_left_in_groups()]))


def _left_in_groups() -> Iterator[int]:
    """Yield the bytes left of each limit on this process: of its control group and all above."""
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        lines = []
    for line in ["0::/", *lines]:  # the first: a container may not see the path of its own group
        _, controllers, path = line.split(":", 2)
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            if not controllers:  # version 2
                yield from _left(_MEMORY_LIMITS / folder, "max", "current", "")
            elif "memory" in controllers.split(","):
                root = _MEMORY_LIMITS / "memory"
                yield from _left(root / folder, "limit_in_bytes", "usage_in_bytes", "total_")


def _left(folder: Path, limit_name: str, used_name: str, prefix: str) -> Iterator[int]:
    """Yield the bytes left of one group's limit; nothing if it has no limit."""
    try:
        limit = (folder / f"memory.{limit_name}").read_text().strip()
        used = int((folder / f"memory.{used_name}").read_text())
        statistics = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return
    if limit != "max":
        # Cached files count as used, but are dropped on demand.
        names = f"{prefix}inactive_file ", f"{prefix}active_file "
        files = sum(int(line.split()[1]) for line in statistics if line.startswith(names))
        yield int(limit) - used + files
