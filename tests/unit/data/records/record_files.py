"""Record files for tests, whole and broken, made byte by byte and not by the code under test."""

import struct
import zlib
from collections.abc import Sequence


def record_file(records: Sequence[bytes]) -> bytes:
    """Return a whole file of these records."""
    offset, offsets = 12 + 12 * len(records), []
    for record in records:
        offsets.append(offset)
        offset += len(record)
    return header([zlib.crc32(record) for record in records], offsets) + b"".join(records)


def header(checksums: Sequence[int], offsets: Sequence[int], number: int | None = None) -> bytes:
    """Return a header with a right checksum, whatever the header says."""
    body = struct.pack("<q", len(checksums) if number is None else number)
    body += struct.pack(f"<{len(checksums)}I", *checksums)
    body += struct.pack(f"<{len(offsets)}q", *offsets)
    return struct.pack("<I", zlib.crc32(body)) + body


def records_of(content: bytes) -> list[bytes]:
    """Return the records of a whole file, as a reader without our code finds them."""
    (number,) = struct.unpack_from("<q", content, 4)
    offsets = struct.unpack_from(f"<{number}q", content, 12 + 4 * number)
    bounds = [*offsets, len(content)]
    return [content[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]


def index_entry(
    name: bytes, size: tuple[int, int] = (32, 48), labels: bytes = b"", num_labels: int = 0
) -> bytes:
    """Return an entry of an index; num_labels replaces the number of bytes of labels."""
    return struct.pack("<IIiH", *size, num_labels or len(labels), len(name)) + name + labels


def index_record(entries: Sequence[bytes], version: int = 1, number: int | None = None) -> bytes:
    """Return an index with these entries."""
    count = len(entries) if number is None else number
    return b"duet-img" + struct.pack("<II", version, count) + b"".join(entries)


def image_file(*entries: bytes, **changes: int) -> bytes:
    """Return a whole file of a few bytes for each entry, with their index."""
    images = [b"image %d" % number for number in range(len(entries))]
    return record_file([*images, index_record(entries, **changes)])
