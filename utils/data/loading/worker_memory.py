"""Memory shared with loader workers: the arrays of all samples, and the batches of one worker."""

from __future__ import annotations

import dataclasses
import math
import mmap
import os
import struct
from collections.abc import Callable
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


class _Place(NamedTuple):
    """Where an array lies in a file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


class SharedSource:
    """A batch source for spawned processes; what they get is equal to it, its samples read-only.

    The arrays of its samples lie in memory that all of them share: a copy of a million samples
    would take 200 MB or more per worker.
    """

    def __init__(self, source: BatchSource):
        self._size = 0  # of the arrays in the file, bytes
        self._arrays: list[tuple[np.ndarray, _Place]] = []
        samples = _mapped(source.samples, np.ndarray, self._place)
        self._empty = dataclasses.replace(source, samples=samples)
        self._file: NamelessFile | None = None  # from the first worker on

    def _place(self, array: np.ndarray) -> _Place:
        place = _Place(array.dtype.str, array.shape, self._size)
        self._arrays.append((array, place))
        self._size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return place

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file is None:
            self._file = NamelessFile(self._size)
            with mmap.mmap(self._file.descriptor, 0) as memory:  # this process has its own arrays
                for array, (dtype, shape, offset) in self._arrays:
                    np.ndarray(shape, dtype, memory, offset)[...] = array
        return _attach, (self._empty, self._file)


def _attach(empty: BatchSource, file: NamelessFile) -> BatchSource:
    def array_at(place: _Place) -> np.ndarray:
        array = file.array(*place)
        array.flags.writeable = False
        return array

    return dataclasses.replace(empty, samples=_mapped(empty.samples, _Place, array_at))


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return a dataclass after a change of all fields of a kind, also of dataclasses inside it."""
    if isinstance(value, kind):
        return change(value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    names = [field.name for field in dataclasses.fields(value)]
    changed = {name: _mapped(getattr(value, name), kind, change) for name in names}
    return dataclasses.replace(value, **changed)
