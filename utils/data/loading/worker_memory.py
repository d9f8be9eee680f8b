"""Memory shared with loader workers: the arrays of all samples, and the batches of one worker."""

from __future__ import annotations

import dataclasses
import math
import mmap
import os
import struct
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from utils.data.loading.batches import BatchSource
from utils.data.loading.nameless_file import NamelessFile

SLOTS_PER_WORKER = 2  # batches that a worker may be ahead
_NOTE_BYTES = 4096  # the longest path of the system, and the length of it
_LENGTH = struct.Struct("<H")
_ALIGNMENT = 64  # bytes


class SharedSlots(NamedTuple):
    """Memory for a few image arrays, shared with a spawned process."""

    slot_bytes: int
    file: NamelessFile

    @staticmethod
    def of(slot_bytes: int) -> SharedSlots:
        """Return memory for batches of at most `slot_bytes`."""
        return SharedSlots(
            slot_bytes, NamelessFile(_NOTE_BYTES + SLOTS_PER_WORKER * max(slot_bytes, 1))
        )

    def images(self, batch_index: int, workers: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the uint8 array of a batch's images; a worker's batches take its slots in turn."""
        assert math.prod(shape) <= self.slot_bytes
        slot = batch_index // workers % SLOTS_PER_WORKER
        return self.file.array(np.uint8, shape, _NOTE_BYTES + slot * self.slot_bytes)

    def note(self, path: Path | None) -> None:
        """Keep the path of the image that the worker reads, None for no image."""
        text = b"" if path is None else os.fsencode(path)[: _NOTE_BYTES - _LENGTH.size]
        self.file.memory[_LENGTH.size : _LENGTH.size + len(text)] = text
        _LENGTH.pack_into(self.file.memory, 0, len(text))

    def noted(self) -> Path | None:
        """Return the path that the worker noted last."""
        (length,) = _LENGTH.unpack_from(self.file.memory)
        text = self.file.memory[_LENGTH.size : _LENGTH.size + length]
        return Path(os.fsdecode(text)) if text else None


class SharedSource:
    """A batch source for spawned processes; what they get is equal to it, its samples read-only.

    The arrays of its samples lie in memory that all of them share: a copy of a million samples
    would take 200 MB or more per worker.
    """

    def __init__(self, source: BatchSource):
        self._source = source
        self._file: NamelessFile | None = None  # from the first worker on
        self._places: list[tuple[str, tuple[int, ...], int]] = []  # dtype, shape and offset

    def __reduce__(self) -> tuple[Any, ...]:
        samples = self._source.samples
        if self._file is None:
            self._copy(arrays_of(samples))
        nothing = with_arrays(samples, repeat(np.zeros(0)))
        empty = dataclasses.replace(self._source, samples=nothing)  # type: ignore[type-var]
        return _attach, (empty, self._places, self._file)

    def _copy(self, arrays: list[np.ndarray]) -> None:
        end = 0
        for array in arrays:
            self._places.append((array.dtype.str, array.shape, end))
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._file = NamelessFile(end)
        with mmap.mmap(self._file.descriptor, 0) as memory:  # this process reads its own arrays
            for array, (dtype, shape, offset) in zip(arrays, self._places, strict=True):
                np.ndarray(shape, dtype, memory, offset)[...] = array


def _attach(
    empty: BatchSource, places: list[tuple[str, tuple[int, ...], int]], file: NamelessFile
) -> BatchSource:
    def arrays() -> Iterator[np.ndarray]:
        for place in places:
            array = file.array(*place)
            array.flags.writeable = False
            yield array

    samples = with_arrays(empty.samples, arrays())
    source: BatchSource = dataclasses.replace(empty, samples=samples)  # type: ignore[type-var]
    return source


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
