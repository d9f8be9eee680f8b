"""The FFRecord layout: a header of checksums and offsets, then the records back to back.

Before: a file. After: `index.py`, which knows what the records of this project hold.
Source: the files that HFAI's ffrecord 1.4.0 writes; little-endian, no magic, no padding.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from backend.words import count
from utils.errors import DatasetError
from utils.files.regular import open_regular

SUFFIX = ".ffr"
START = struct.Struct("<Iq")  # the checksum of all that follows it in the header, and N
CHECKSUM_TYPE = np.dtype("<u4")
OFFSET_TYPE = np.dtype("<i8")
# A file may consist of holes, which take no disk space: no more records than this are read.
MAX_RECORDS = 1 << 26
_CHUNK_RECORDS = 1 << 17

log = logging.getLogger("records")


class RecordPlace(NamedTuple):
    """All that a process needs to know to read one record and to check it."""

    path: Path
    number: int  # from 0
    offset: int  # bytes from the start of the file
    length: int
    checksum: int  # CRC-32

    def damaged(self, what: str) -> DatasetError:
        """Return the error for this record."""
        return damaged(self.path, f"record {self.number} {what}")


@dataclass(frozen=True, eq=False)
class RecordTable:
    """A header that passed its checks."""

    path: Path
    checksums: np.ndarray  # (N,) uint32
    bounds: np.ndarray  # (N + 1,) int64: the offset of each record, then the size of the file

    def __len__(self) -> int:
        return len(self.checksums)

    def place(self, number: int) -> RecordPlace:
        """Return where a record lies; number counts from 0."""
        start, end = self.bounds[number : number + 2].tolist()
        return RecordPlace(self.path, number, start, end - start, int(self.checksums[number]))

    def __iter__(self) -> Iterator[RecordPlace]:
        return (self.place(number) for number in range(len(self)))


def header_size(num_records: int) -> int:
    """Return how many bytes lie before the first record."""
    return START.size + num_records * (CHECKSUM_TYPE.itemsize + OFFSET_TYPE.itemsize)


def damaged(path: Path, what: str) -> DatasetError:
    """Return the error for a file that is not as it was written."""
    return DatasetError(
        f"{path}: {what}; the file is damaged or incomplete: copy it again from where it came, or "
        "pack the dataset again"
    )


def read_table(path: Path) -> RecordTable:
    """Read and check the header of a record file; the records themselves are not read.

    Memory is 12 bytes per record, and never more than what the file really holds.

    Raises:
        DatasetError: the file cannot be read, or its header contradicts itself or the file.
    """
    try:
        with open_regular(path) as file:
            return _read_table(path, file)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error


def _read_table(path: Path, file: BinaryIO) -> RecordTable:
    size = os.fstat(file.fileno()).st_size
    if size < START.size:
        raise damaged(path, f"has {size} bytes, and a record file has at least {START.size}")
    stored, num_records = START.unpack(file.read(START.size))
    if num_records == 0 and (size > START.size or stored == 0):
        raise damaged(path, "names 0 records: its writer did not finish")
    if not 0 <= num_records <= MAX_RECORDS or header_size(num_records) > size:
        raise damaged(
            path, f"names {count(num_records, 'record')}, which its {size} bytes cannot hold"
        )
    # The offsets before the checksums: they show holes in the file before memory is filled.
    offsets = _read_offsets(path, file, num_records, size)
    file.seek(START.size)
    checksums = _read_array(path, file, CHECKSUM_TYPE, num_records)
    found = zlib.crc32(START.pack(0, num_records)[CHECKSUM_TYPE.itemsize :])
    found = zlib.crc32(offsets.data, zlib.crc32(checksums.data, found))
    if stored == 0 and found != 0:
        log.warning("%s: an old file, with checksums of its records but none of its header", path)
    elif stored != found:
        raise damaged(path, f"the header's checksum is {found:08x}, stored is {stored:08x}")
    return RecordTable(path, checksums, np.append(offsets, size))


def _read_offsets(path: Path, file: BinaryIO, num_records: int, size: int) -> np.ndarray:
    """Read the offsets part by part; the first wrong one ends the reading."""
    file.seek(START.size + num_records * CHECKSUM_TYPE.itemsize)
    parts = [np.empty(0, OFFSET_TYPE)]
    lower = header_size(num_records)
    for start in range(0, num_records, _CHUNK_RECORDS):
        part = _read_array(path, file, OFFSET_TYPE, min(_CHUNK_RECORDS, num_records - start))
        if start == 0 and part[0] != lower:
            raise damaged(path, f"record 0 starts at {part[0]}, and the header ends at {lower}")
        before = np.concatenate([[lower], part[:-1]])  # differences of int64 could overflow
        if wrong := np.flatnonzero((part < before) | (part > size)).tolist():
            raise damaged(
                path,
                f"record {start + wrong[0]} starts at {part[wrong[0]]}, which is not between "
                f"the record in front of it and the end of the file, {size}",
            )
        lower = int(part[-1])
        parts.append(part)
    return np.concatenate(parts)


def _read_array(path: Path, file: BinaryIO, dtype: np.dtype, count: int) -> np.ndarray:
    array = np.fromfile(file, dtype, count)
    if len(array) < count:
        raise damaged(path, "became shorter while it was read")
    return array
