"""The FFRecord layout: a header of checksums and offsets, then the records back to back.

A process opens a file at its first read. Reads are positioned, not mapped: if a mapped file is cut
off or its disk fails, a signal ends the process instead of an error.

Source: the files that HFAI's ffrecord 1.4.0 writes; little-endian, no magic, no padding.
"""

import os
import struct
import weakref
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from duet.utils.data.sources.image_sources import RecordPlace
from duet.utils.errors import DatasetError
from duet.utils.files.regular import open_descriptor, open_regular
from duet.utils.system.files import read_at
from duet.utils.text import count

SUFFIX = ".ffr"
START = struct.Struct("<Iq")  # the checksum of all that follows it in the header, and N
CHECKSUM_TYPE, OFFSET_TYPE = np.dtype("<u4"), np.dtype("<i8")
# A file may consist of holes, which take no disk space: no more records than this are read.
MAX_RECORDS = 1 << 26
MAX_RECORD_BYTES = 1 << 30
_OPEN_FILES = 128  # well below the usual limit of 1,024 a process


@dataclass(frozen=True, eq=False)
class RecordTable:
    """A header that passed its checks."""

    path: Path
    checksums: np.ndarray  # (N,) uint32
    bounds: np.ndarray  # (N + 1,) int64: the offset of each record, then the size of the file

    def __len__(self) -> int:
        return len(self.checksums)

    def place(self, number: int) -> RecordPlace:
        start, end = self.bounds[number : number + 2].tolist()
        return RecordPlace(self.path, number, start, end - start, int(self.checksums[number]))

    def __iter__(self) -> Iterator[RecordPlace]:
        return (self.place(number) for number in range(len(self)))


def header_size(num_records: int) -> int:
    return START.size + num_records * (CHECKSUM_TYPE.itemsize + OFFSET_TYPE.itemsize)


def damaged(path: Path, what: str) -> DatasetError:
    return DatasetError(
        f"{path}: {what}; the file is damaged or incomplete: copy it again from where it came, or "
        "pack the dataset again"
    )


def damaged_record(place: RecordPlace, what: str) -> DatasetError:
    return damaged(place.path, f"record {place.number} {what}")


def read_table(path: Path) -> RecordTable:
    """Read and check the header of a record file.

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
    stored, number = START.unpack(file.read(START.size))
    first = header_size(number)
    if not 1 <= number <= MAX_RECORDS or first > size:
        raise damaged(path, f"names {count(number, 'record')} in {size} bytes")
    checksum_bytes = number * CHECKSUM_TYPE.itemsize
    file.seek(checksum_bytes, os.SEEK_CUR)
    start = int.from_bytes(file.read(OFFSET_TYPE.itemsize), "little")
    if start != first:  # finds a sparse file before memory fills up
        raise damaged(path, f"record 0 starts at {start}, and the header ends at {first}")
    file.seek(START.size)
    body = file.read(first - START.size)
    found = zlib.crc32(body, zlib.crc32(struct.pack("<q", number)))
    if stored != found:
        raise damaged(path, f"the header's checksum is {found:08x}, stored is {stored:08x}")
    checksums = np.frombuffer(body[:checksum_bytes], CHECKSUM_TYPE)
    bounds = np.append(np.frombuffer(body[checksum_bytes:], OFFSET_TYPE), size)
    # Compared, because differences of int64 could overflow.
    if wrong := np.flatnonzero(bounds[1:] < bounds[:-1]).tolist():
        start, end = bounds[wrong[0] : wrong[0] + 2].tolist()
        raise damaged(path, f"record {wrong[0]} starts at {start}, and ends before, at {end}")
    return RecordTable(path, checksums, bounds)


def read_record(place: RecordPlace) -> np.ndarray:
    """Return the bytes of a record, (length,) uint8.

    DatasetError: the file cannot be read, the record is damaged or longer than 1 GiB.
    """
    if place.length > MAX_RECORD_BYTES:
        raise damaged_record(
            place, f"has {place.length} bytes; at most {MAX_RECORD_BYTES} are read"
        )
    try:
        file = _open_file(place.path)  # held: another thread may make the cache let it go
        content = read_at(file.descriptor, place.length, place.offset)
    except OSError as error:
        raise DatasetError(
            f"{place.path}: record {place.number} cannot be read: {error.strerror}"
        ) from error
    if len(content) < place.length:
        raise damaged_record(place, "extends beyond the end of the file")
    if (found := zlib.crc32(content)) != place.checksum:
        raise damaged_record(place, f"has the checksum {found:08x}, stored is {place.checksum:08x}")
    return np.frombuffer(content, np.uint8)


class _OpenFile:
    """A descriptor that is closed when it is garbage collected."""

    def __init__(self, path: Path):
        self.descriptor = open_descriptor(path)
        weakref.finalize(self, os.close, self.descriptor)


@lru_cache(maxsize=_OPEN_FILES)  # on a shared file system an open costs more than the read
def _open_file(path: Path) -> _OpenFile:
    return _OpenFile(path)


def forget_open_files() -> None:
    """Reopen every file at its next read, in case it was replaced."""
    _open_file.cache_clear()


def write_records(path: Path, num_records: int, records: Iterable[np.ndarray]) -> None:
    """Write a new file of `num_records` records, each (num_bytes,) uint8, the header last.

    OSError: the file exists, or cannot be written.
    """
    checksums = np.zeros(num_records, CHECKSUM_TYPE)
    offsets = np.zeros(num_records, OFFSET_TYPE)
    with open(path, "xb") as file:
        file.seek(header_size(num_records))
        for index, record in zip(range(num_records), records, strict=True):
            checksums[index] = zlib.crc32(record.data)
            offsets[index] = file.tell()
            file.write(record.data)
        body = struct.pack("<q", num_records) + checksums.tobytes() + offsets.tobytes()
        file.seek(0)
        file.write(struct.pack("<I", zlib.crc32(body)) + body)
        file.flush()
        os.fsync(file.fileno())
