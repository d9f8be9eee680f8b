"""One record out of a file: read where it lies, checked against its checksum.

Before: `layout.py`. After: `loading/reading.py`, in the loader workers.

A process opens a file at its first read; processes share only the system's page cache. Reads are
positioned, not mapped: if a mapped file is cut off or its disk fails, a signal ends the process
instead of an error.
"""

from __future__ import annotations

import os
import weakref
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from utils.data.records.layout import RecordPlace
from utils.errors import DatasetError
from utils.files.regular import open_descriptor

MAX_RECORD_BYTES = 1 << 30  # of what is read into memory at once
_OPEN_FILES = 128  # well below the usual limit of 1,024 a process
_CHUNK_BYTES = 1 << 20


def read_record(place: RecordPlace) -> np.ndarray:
    """Return the bytes of a record, (length,) uint8.

    Raises:
        DatasetError: the file cannot be read, the record is damaged or longer than 1 GiB.
    """
    if place.length > MAX_RECORD_BYTES:
        raise place.damaged(f"has {place.length} bytes; at most {MAX_RECORD_BYTES} are read")
    content = np.empty(place.length, np.uint8)
    _read_into(place, 0, content)
    _check(place, zlib.crc32(content.data))
    return content


def check_record(place: RecordPlace) -> None:
    """Compare a record of any length with its checksum, in 1 MiB of memory.

    Raises:
        DatasetError: the file cannot be read, or the record is damaged.
    """
    checksum = 0
    buffer = np.empty(min(_CHUNK_BYTES, place.length), np.uint8)
    for start in range(0, place.length, _CHUNK_BYTES):
        part = buffer[: place.length - start]
        _read_into(place, start, part)
        checksum = zlib.crc32(part.data, checksum)
    _check(place, checksum)


def read_start(place: RecordPlace, num_bytes: int) -> bytes:
    """Return the first bytes of a record, at most its length, unchecked."""
    content = np.empty(min(num_bytes, place.length), np.uint8)
    _read_into(place, 0, content)
    return content.tobytes()


def _check(place: RecordPlace, found: int) -> None:
    if found != place.checksum:
        raise place.damaged(f"has the checksum {found:08x}, stored is {place.checksum:08x}")


def _read_into(place: RecordPlace, start: int, target: np.ndarray) -> None:
    """Fill target with a record's bytes from start on; the system may give them in parts."""
    try:
        file = _open_file(place.path)
        view = target.data
        while len(view):
            offset = place.offset + start + len(target) - len(view)
            num_read = os.preadv(file.descriptor, [view], offset)
            if num_read == 0:
                raise place.damaged("extends beyond the end of the file")
            view = view[num_read:]
    except OSError as error:
        raise DatasetError(
            f"{place.path}: record {place.number} cannot be read: {error.strerror}"
        ) from error


class _OpenFile:
    """A descriptor that is closed when nothing refers to it any more."""

    def __init__(self, path: Path):
        self.descriptor = open_descriptor(path)
        weakref.finalize(self, os.close, self.descriptor)


@lru_cache(maxsize=_OPEN_FILES)
def _open_file(path: Path) -> _OpenFile:
    return _OpenFile(path)


def forget_open_files() -> None:
    """Open every file anew at its next read, in case it was replaced."""
    _open_file.cache_clear()
