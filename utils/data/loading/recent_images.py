"""The images of the last places of an epoch's order, decoded, for all processes of a machine."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from utils.data.loading.memory import require_memory
from utils.data.loading.nameless_file import NamelessFile, share_file
from utils.processes.world import ALONE, World

FLAG = "--mosaic-window"
_MARK = struct.Struct("<Q")  # 0: no image is there
_NOTHING = 0


class RecentImages:
    """A ring of images: each takes the slot of the one `num_slots` places before it in the order.

    No batch depends on what is there: an image that is not there is decoded again. A lock on each
    slot keeps a reader from half an image; it ends with the process that holds it.
    """

    def __init__(self, num_slots: int, image_bytes: int, file: NamelessFile):
        """Use an open file; each slot takes an image of up to `image_bytes`."""
        self._num_slots, self._image_bytes, self._file = num_slots, image_bytes, file

    def get(
        self, place: int, sample: int, size: tuple[int, int], decode: Callable[[], np.ndarray]
    ) -> np.ndarray:
        """Return the image of a sample, (H, W, 3) uint8; decode and keep it if it is not there.

        Args:
            place: in the order, from 0 up, over all epochs; it says which slot the image takes.
            sample: index, from 0 up. The mark, as an epoch may have another order (`order.Epoch`).
            size: (height, width) of what `decode` returns.
        """
        start = place % self._num_slots * (_MARK.size + self._image_bytes)
        mark = _MARK.pack(sample + 1)
        with self._locked(start, fcntl.LOCK_SH):
            if os.pread(self._file.descriptor, _MARK.size, start) == mark:
                image = np.empty((*size, 3), np.uint8)
                os.preadv(self._file.descriptor, [image.data], start + _MARK.size)
                return image
        image = np.ascontiguousarray(decode())
        assert image.shape == (*size, 3) and image.nbytes <= self._image_bytes
        with self._locked(start, fcntl.LOCK_EX):
            # First, for a process that is killed in the middle.
            os.pwrite(self._file.descriptor, _MARK.pack(_NOTHING), start)
            if os.pwrite(self._file.descriptor, image.data, start + _MARK.size) == image.nbytes:
                os.pwrite(self._file.descriptor, mark, start)
        return image

    @contextmanager
    def _locked(self, start: int, kind: int) -> Iterator[None]:
        fcntl.lockf(self._file.descriptor, kind, 1, start)
        try:
            yield
        finally:
            fcntl.lockf(self._file.descriptor, fcntl.LOCK_UN, 1, start)


def keep_recent_images(
    sizes: Sequence[tuple[int, int]],
    num_slots: int,
    world: World = ALONE,
    remedy: str = f"leave {FLAG} out",
) -> RecentImages:
    """Return an empty ring; the processes of a machine share one.

    Args:
        sizes: (height, width) of the images that may be kept, as they are decoded; none for a
            ring without slots.
        num_slots: how many images are kept.
        world: the processes that call this together.
        remedy: ends an error.

    Raises:
        UserError: there is not enough memory.
    """
    image_bytes = 3 * max((height * width for height, width in sizes), default=0)
    file = None
    if world.process.local_rank == 0:
        num_bytes = num_slots * (_MARK.size + image_bytes)
        require_memory(num_bytes, f"{FLAG}: {num_slots} decoded images", remedy)
        file = NamelessFile(num_bytes)
    if world.process.world_size > 1:
        _, file = share_file(file, num_slots, FLAG, world)
    assert file is not None
    return RecentImages(num_slots, image_bytes, file)
