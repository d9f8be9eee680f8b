"""Decoded images in memory or in a file, shared by all loader workers of a machine."""

import logging
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from duet.utils.data.loading.worker_process import inherited
from duet.utils.errors import DatasetError
from duet.utils.memory import free_memory
from duet.utils.processes.world import ALONE, World
from duet.utils.system import files
from duet.utils.text import count

_ABSENT, _PRESENT = b"\0", b"\1"
_PAGE = 4096

log = logging.getLogger("data")


class NamelessFile:
    """An open file without a name; `start_process` hands it to the new process.

    In memory unless a descriptor is given, without the limit of /dev/shm, 64 MB in a default
    container.
    """

    def __init__(self, num_bytes: int = 0, descriptor: int | None = None):
        """Take over an open descriptor, or make a file of some bytes in memory."""
        self.descriptor = files.memory_file() if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, max(num_bytes, 1))  # mapping 0 bytes fails

    def __reduce__(self) -> tuple[object, ...]:
        return _inherit, (inherited(self.descriptor),)

    def __del__(self) -> None:
        if "descriptor" in vars(self):
            os.close(self.descriptor)

    @cached_property
    def memory(self) -> mmap.mmap:
        """The bytes of the file, shared with every process that maps them."""
        return mmap.mmap(self.descriptor, 0)


def _inherit(number: int) -> NamelessFile:
    return NamelessFile(descriptor=files.open_inherited(number))


class ImageCache:
    """Images by sample index; the first process that needs one decodes and keeps it for all.

    A disk cache leaves no file behind. Images beyond the limit are not kept.
    """

    def __init__(self, starts: np.ndarray, shapes: np.ndarray, kind: str, file: NamelessFile):
        """Use an open file; `starts` (S,) int64 bytes, -1 for none; `shapes` (S, 2) int32."""
        self._starts, self._shapes, self._kind, self._file = starts, shapes, kind, file

    @property
    def extent(self) -> str:
        """The part of the samples' images that fits: "all", "part" or "none"."""
        held = self._starts >= 0
        return "all" if held.all() else "part" if held.any() else "none"

    def get(self, index: int, decode: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the image of a sample, (H, W, 3) uint8; decode it if absent, and keep it.

        An image kept before is read-only. DatasetError: no space is left to keep it.
        """
        start = int(self._starts[index])
        if start < 0:
            return decode()
        file = self._file
        if files.read_shared(file.descriptor, file.memory, 1, index) == _ABSENT:
            image = decode()
            assert image.shape == (*self._shapes[index], 3)
            # Another process may write the same bytes at the same time.
            self._write(image.tobytes(), start)
            self._write(_PRESENT, index)
            return image
        height, width = self._shapes[index].tolist()
        kept: np.ndarray = np.ndarray((height, width, 3), np.uint8, file.memory, start)
        kept.flags.writeable = False
        return kept

    def _write(self, content: bytes, start: int) -> None:
        try:
            files.write_shared(self._file.descriptor, self._file.memory, content, start)
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
    """Return an empty cache for images of these (height, width), and log its size.

    The processes of a machine share one, created by the first.

    Args:
        kind: "ram", or "disk" for a file in the folder TMPDIR, by default /var/tmp.
        sizes: image size of every sample as loaded, the same in all processes.
        fraction: maximum fraction of free memory or disk space to use.
        split: the name of the images in the log line.
    """
    assert kind in ("ram", "disk")
    shapes = np.array(sizes, np.int32).reshape(-1, 2)
    limit, file = 0, None
    if world.process.local_rank == 0:
        usual = ("/var/tmp", tempfile.gettempdir())  # /tmp is memory on some systems
        folder = os.environ.get("TMPDIR") or next(filter(os.path.exists, usual))
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
        limit, file = _share(file, limit, kind, world)
    assert file is not None
    starts, _ = _plan(shapes, limit)
    return ImageCache(starts, shapes, kind, file)


def _plan(shapes: np.ndarray, limit: int) -> tuple[np.ndarray, int]:
    """Return where each image starts, (S,) int64 bytes, -1 for nowhere, and the bytes of all."""
    num_bytes = _num_bytes(shapes)
    first = -(-len(shapes) // _PAGE) * _PAGE  # one byte per image marks whether it is cached
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


def _share(
    file: NamelessFile | None, limit: int, kind: str, world: World
) -> tuple[int, NamelessFile]:
    """Return the limit and the file of a machine's first process; `file` is None in the others."""
    place = [0] * 4 if file is None else [os.getpid(), file.descriptor, *_identity(file)]
    mine = [file is not None, limit, *place]
    all_of_them = np.concatenate(world.all_gather(np.array([mine], np.int64)))
    if file is None:
        # The ranks of a machine follow each other.
        first_of_machine = np.flatnonzero(all_of_them[: world.process.rank, 0])[-1]
        _, limit, process_id, descriptor, *identity = all_of_them[first_of_machine].tolist()
        try:
            file = NamelessFile(descriptor=files.open_of_process(process_id, descriptor))
            if _identity(file) != identity:  # its number means another process here
                raise FileNotFoundError(f"number {descriptor} is another file")
        except OSError as error:
            raise DatasetError(
                f"--cache {kind}: the images that process {process_id} keeps for this machine "
                f"cannot be shared: {error}; run all processes of a machine as one user, or leave "
                "--cache out"
            ) from error
    world.all_gather(np.zeros(0, np.int64))  # the first one keeps its file until all have opened it
    return limit, file


def _identity(file: NamelessFile) -> list[int]:
    status = os.fstat(file.descriptor)
    return [status.st_dev % 2**63, status.st_ino % 2**63]
