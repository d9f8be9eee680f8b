"""Writing a record file: the records, then the header in front of them.

Before: `command/packing.py`. After: `layout.py`, which reads it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from utils.data.records.layout import CHECKSUM_TYPE, OFFSET_TYPE, header_size


def write_records(path: Path, num_records: int, records: Iterable[np.ndarray]) -> None:
    """Write a new file of `num_records` records, each (num_bytes,) uint8.

    The header is written last: an unfinished file has none.

    Raises:
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
