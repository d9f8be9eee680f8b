"""A batch source sent to workers with its large arrays in memory that all of them share.

Before: `batches.py` or `val_batches.py`. After: `workers.py`.

A copy of a million samples in each worker would take 200 MB and more a worker. What is pickled goes
from this process to its own workers, as all that `multiprocessing` sends: never to or from a file.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
from collections.abc import Sequence
from multiprocessing import reduction
from typing import Any

from utils.data.loading.batches import BatchSource

_ALIGNMENT = 64  # bytes

Places = list[tuple[int, int]]


class SharedSource:
    """A source for spawned processes; what they get is equal to it, and its arrays are read-only.

    The memory has no name in any file system: it cannot outlive its processes.
    """

    def __init__(self, source: BatchSource):
        self._source = source
        self._memory: _Memory | None = None  # from the first worker on

    def __reduce__(self) -> tuple[Any, ...]:
        content, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        pickle.Pickler(content, 5, buffer_callback=buffers.append).dump(self._source)
        arrays = [buffer.raw() for buffer in buffers]
        places = _places([array.nbytes for array in arrays])
        # A source may have made more arrays since the last worker started; those it had stay.
        if self._memory is None or self._memory.places != places:
            self._memory = _Memory(arrays, places)
        return _attach, (content.getvalue(), places, reduction.DupFd(self._memory.descriptor))


class _Memory:
    """Arrays in a file without a name."""

    def __init__(self, arrays: Sequence[memoryview], places: Places):
        self.descriptor, self.places = os.memfd_create("loader-samples"), places
        size = max([1, *(end for _, end in places)])
        os.ftruncate(self.descriptor, size)
        with mmap.mmap(self.descriptor, size) as memory:
            for array, (first, end) in zip(arrays, places, strict=True):
                memory[first:end] = array

    def __del__(self) -> None:
        os.close(self.descriptor)


def _places(sizes: Sequence[int]) -> Places:
    """Return where arrays of these bytes begin and end."""
    places: Places = []
    for size in sizes:
        before = places[-1][1] if places else 0
        start = -(-before // _ALIGNMENT) * _ALIGNMENT
        places.append((start, start + size))
    return places


def _attach(content: bytes, places: Places, duplicate: Any) -> BatchSource:
    descriptor = duplicate.detach()
    try:
        memory = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)
    source: BatchSource = pickle.loads(content, buffers=[memory[a:b] for a, b in places])
    return source
