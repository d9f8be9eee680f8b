"""One record out of a file: read where it lies, checked against its checksum.

A process opens a file at its first read. Reads are positioned, not mapped: if a mapped file is cut
off or its disk fails, a signal ends the process instead of an error.
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

MAX_RECORD_BYTES = 1 << 30
_OPEN_FILES = 128  # well below the usual limit of 1,024 a process


def read_record(place: RecordPlace) -> np.ndarray:
    """Return the bytes of a record, (length,) uint8.

    Raises:
        DatasetError: the file cannot be read, the record is damaged or longer than 1 GiB.
    """
    if place.length > MAX_RECORD_BYTES:
        raise place.damaged(f"has {place.length} bytes; at most {MAX_RECORD_BYTES} are read")
    content = read_start(place, place.length)
    if (found := zlib.crc32(content)) != place.checksum:
        raise place.damaged(f"has the checksum {found:08x}, stored is {place.checksum:08x}")
    return np.frombuffer(content, np.uint8)


def read_start(place: RecordPlace, num_bytes: int) -> bytes:
    """Return the first bytes of a record, at most its length, unchecked."""
    length = min(num_bytes, place.length)
    try:
        content = os.pread(_open_file(place.path).descriptor, length, place.offset)
    except OSError as error:
        raise DatasetError(
            f"{place.path}: record {place.number} cannot be read: {error.strerror}"
        ) from error
    if len(content) < length:
        raise place.damaged("extends beyond the end of the file")
    return content


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
