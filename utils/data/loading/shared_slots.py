"""Memory for built batches and the path of the image being read, shared with one worker.

Before: `batches.py` fills it in the worker. After: `workers.py` copies from it in the parent.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from multiprocessing import reduction
from pathlib import Path
from typing import Any

import numpy as np

SLOTS_PER_WORKER = 2  # batches that a worker may be ahead
_NOTE_BYTES = 4096  # the longest path of the system, and the length of it
_LENGTH = struct.Struct("<H")


class SharedSlots:
    """Memory for a few image arrays, shared with a spawned process.

    It has no name in any file system: it cannot outlive its processes, and the limit of /dev/shm,
    64 MB in a default container, does not apply.
    """

    _descriptor = -1  # not open

    def __init__(self, slot_bytes: int, descriptor: int | None = None):
        slot_bytes = max(slot_bytes, 1)  # a rank may have no image; mapping 0 bytes fails
        # First, since __del__ closes it whatever fails below.
        self._descriptor = os.memfd_create("loader-slots") if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self._descriptor, _NOTE_BYTES + SLOTS_PER_WORKER * slot_bytes)
        self._slot_bytes = slot_bytes
        self._memory = mmap.mmap(self._descriptor, _NOTE_BYTES + SLOTS_PER_WORKER * slot_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach_slots, (self._slot_bytes, reduction.DupFd(self._descriptor))

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def images(self, batch_index: int, workers: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the uint8 array of a batch's images; a worker's batches take its slots in turn."""
        slot = batch_index // workers % SLOTS_PER_WORKER
        start = _NOTE_BYTES + slot * self._slot_bytes
        return np.frombuffer(self._memory, np.uint8, math.prod(shape), offset=start).reshape(shape)

    def note(self, path: Path | None) -> None:
        """Keep the path of the image that the worker reads, None for no image."""
        text = b"" if path is None else os.fsencode(path)[: _NOTE_BYTES - _LENGTH.size]
        self._memory[_LENGTH.size : _LENGTH.size + len(text)] = text
        _LENGTH.pack_into(self._memory, 0, len(text))

    def noted(self) -> Path | None:
        """Return the path that the worker noted last."""
        (length,) = _LENGTH.unpack_from(self._memory)
        text = self._memory[_LENGTH.size : _LENGTH.size + length]
        return Path(os.fsdecode(text)) if text else None


def _attach_slots(slot_bytes: int, duplicate: Any) -> SharedSlots:
    return SharedSlots(slot_bytes, duplicate.detach())
