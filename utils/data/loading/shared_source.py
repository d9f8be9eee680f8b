"""A batch source sent to workers with the arrays of its samples in memory that all of them share.

Before: `batches.py` or `val_batches.py`. After: `workers.py`.

A copy of a million samples would take 200 MB or more per worker.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
from collections.abc import Iterator, Sequence
from itertools import repeat
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

from utils.data.loading.batches import BatchSource

_ALIGNMENT = 64  # bytes


class _Place(NamedTuple):
    """Where an array lies in the memory."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


class SharedSource:
    """A source for spawned processes; what they get is equal to it, its samples read-only.

    The memory has no name in any file system: it cannot outlive its processes.
    """

    def __init__(self, source: BatchSource):
        self._source = source
        self._memory: _Memory | None = None  # from the first worker on

    def __reduce__(self) -> tuple[Any, ...]:
        samples = self._source.samples
        if self._memory is None:
            self._memory = _Memory(arrays_of(samples))
        nothing = with_arrays(samples, repeat(np.zeros(0)))
        empty = dataclasses.replace(self._source, samples=nothing)  # type: ignore[type-var]
        return _attach, (empty, self._memory.places, reduction.DupFd(self._memory.descriptor))


def arrays_of(value: Any) -> list[np.ndarray]:
    """Return the arrays in a dataclass and in those inside it, in the order of their fields."""
    if isinstance(value, np.ndarray):
        return [value]
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    return [array for field in fields for array in arrays_of(getattr(value, field.name))]


def with_arrays(value: Any, arrays: Iterator[np.ndarray]) -> Any:
    """Return a dataclass with other arrays, taken in the order of `arrays_of`."""
    if isinstance(value, np.ndarray):
        return next(arrays)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    names = [field.name for field in dataclasses.fields(value)]
    return dataclasses.replace(
        value, **{name: with_arrays(getattr(value, name), arrays) for name in names}
    )


class _Memory:
    """Copies of arrays in a file without a name."""

    descriptor = -1  # not open

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.descriptor, self.places = os.memfd_create("loader-samples"), []
        end = 0
        for array in arrays:
            self.places.append(_Place(array.dtype.str, array.shape, end))
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        os.ftruncate(self.descriptor, max(end, 1))
        with mmap.mmap(self.descriptor, 0) as memory:
            for array, place in zip(arrays, self.places, strict=True):
                np.ndarray(place.shape, array.dtype, memory, place.offset)[...] = array

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


def _attach(empty: BatchSource, places: Sequence[_Place], duplicate: Any) -> BatchSource:
    descriptor = duplicate.detach()
    try:
        memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
    arrays: Iterator[np.ndarray] = (
        np.ndarray(place.shape, np.dtype(place.dtype), memory, place.offset) for place in places
    )
    samples = with_arrays(empty.samples, arrays)
    source: BatchSource = dataclasses.replace(empty, samples=samples)  # type: ignore[type-var]
    return source
