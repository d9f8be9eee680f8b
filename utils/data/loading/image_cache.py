"""Decoded images in memory or in a file, shared by all loader workers of a machine."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence

import numpy as np

from backend.words import count
from utils.data.loading.memory import free_memory
from utils.data.loading.nameless_file import NamelessFile, share_file
from utils.errors import DatasetError
from utils.processes.world import ALONE, World

_ABSENT, _PRESENT = b"\0", b"\1"
_PAGE = 4096

log = logging.getLogger("data")


class ImageCache:
    """Images by sample index; the first process that needs one decodes and keeps it for all.

    A disk cache leaves no file behind. Images beyond the limit are not kept.
    """

    def __init__(self, starts: np.ndarray, shapes: np.ndarray, kind: str, file: NamelessFile):
        """Use an open file; `starts` (S,) int64 bytes, -1 for none; `shapes` (S, 2) int32."""
        self._starts, self._shapes, self._kind, self._file = starts, shapes, kind, file

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
        if os.pread(self._file.descriptor, 1, index) == _ABSENT:
            image = decode()
            assert image.shape == (*self._shapes[index], 3)
            # Another process may write the same bytes at the same time.
            self._write(image.tobytes(), start)
            self._write(_PRESENT, index)
            return image
        height, width = self._shapes[index].tolist()
        kept = self._file.array(np.uint8, (height, width, 3), start)
        kept.flags.writeable = False
        return kept

    def _write(self, content: bytes, start: int) -> None:
        try:
            while content:
                written = os.pwrite(self._file.descriptor, content, start)
                content, start = content[written:], start + written
        except OSError as error:
            raise DatasetError(
                f"--cache {self._kind}: an image cannot be kept: {error.strerror}; free some "
                "space, or leave --cache out"
            ) from error


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
    limit, file = 0, None
    if world.process.local_rank == 0:
        folder = os.environ.get("TMPDIR") or "/var/tmp"  # /tmp is memory on some systems
        try:
            free = free_memory() if kind == "ram" else shutil.disk_usage(folder).free
            limit = int(fraction * free)
            starts, size = _plan(shapes, limit)
            place = "memory" if kind == "ram" else f"a file in {folder}"
            log.info(_line(place, split, shapes, starts, limit))
            file = NamelessFile(size) if kind == "ram" else _open_on_disk(folder, size)
        except OSError as error:
            raise DatasetError(
                f"--cache {kind}: no file in {folder if kind == 'disk' else 'memory'}: "
                f"{error.strerror}; name another folder in TMPDIR, or leave --cache out"
            ) from error
    if world.process.world_size > 1:
        limit, file = share_file(file, limit, f"--cache {kind}", world)
    assert file is not None
    starts, _ = _plan(shapes, limit)
    return ImageCache(starts, shapes, kind, file)


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


def _line(place: str, split: str, shapes: np.ndarray, starts: np.ndarray, limit: int) -> str:
    num_bytes, fits = _num_bytes(shapes), starts >= 0
    line = f"cache: {fits.sum()} of {count(len(fits), f'{split} image')} in {place}"
    line += f", {num_bytes[fits].sum() / 1e9:.2f} GB when all are read"
    if not fits.all():
        line += f"; all need {num_bytes.sum() / 1e9:.2f} GB, the limit is {limit / 1e9:.2f} GB of "
        line += "what is free: the others are decoded each time"
    return line


def _open_on_disk(folder: str, size: int) -> NamelessFile:
    with tempfile.TemporaryFile(dir=folder) as file:
        opened = NamelessFile(descriptor=os.dup(file.fileno()))
    os.ftruncate(opened.descriptor, size)
    return opened
