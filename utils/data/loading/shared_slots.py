"""Memory for finished images, shared by the parent with one worker.

Before: `batches.py` fills it in the worker. After: `workers.py` copies from it in the parent.
"""

from __future__ import annotations

import math
import mmap
import os
from multiprocessing import reduction
from typing import Any

import numpy as np

SLOTS_PER_WORKER = 2  # batches that a worker may be ahead


class SharedSlots:
    """Memory for a few image arrays, shared with a spawned process.

    It has no name in any file system: it cannot outlive its processes, and the limit of /dev/shm,
    64 MB in a default container, does not apply.
    """

    def __init__(self, slot_bytes: int, descriptor: int | None = None):
        slot_bytes = max(slot_bytes, 1)  # a rank may have no image; mapping 0 bytes fails
        # First, since __del__ closes it whatever fails below.
        self._descriptor = os.memfd_create("loader-slots") if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self._descriptor, SLOTS_PER_WORKER * slot_bytes)
        self._slot_bytes = slot_bytes
        self._memory = mmap.mmap(self._descriptor, SLOTS_PER_WORKER * slot_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach_slots, (self._slot_bytes, reduction.DupFd(self._descriptor))

    def __del__(self) -> None:
        os.close(self._descriptor)

    def images(self, batch_index: int, workers: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the uint8 array of a batch's images; a worker's batches take its slots in turn."""
        slot = batch_index // workers % SLOTS_PER_WORKER
        flat = np.frombuffer(
            self._memory, np.uint8, math.prod(shape), offset=slot * self._slot_bytes
        )
        return flat.reshape(shape)


def _attach_slots(slot_bytes: int, duplicate: Any) -> SharedSlots:
    return SharedSlots(slot_bytes, duplicate.detach())
