"""Record files: the bytes of the layout, and what is answered to damaged and crafted ones."""

import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.records import layout
from duet.utils.data.records.layout import (
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    read_record,
    read_table,
    write_records,
)
from duet.utils.data.records.record_images import MAX_INDEX_BYTES, read_record_images
from duet.utils.errors import DatasetError
from duet.utils.system.files import read_at
from tests.unit.data.image_files import (
    header,
    image_file,
    index_entry,
    record_file,
)

RECORDS = (b"abc", b"", b"123456789")
# By hand from the published layout. The checksums of the three records are the published CRC-32
# of these texts; that of the header was worked out bit by bit from the polynomial 0xEDB88320.
STORED = bytes.fromhex(
    "db4dc14f"  # checksum of the next 44 bytes
    "0300000000000000"  # number of records
    "c2412435 00000000 2639f4cb"  # their checksums
    "3000000000000000 3300000000000000 3300000000000000"  # their offsets: 48, 51, 51
    "616263 313233343536373839"
)
MIB = 1 << 20


def arrays(records) -> list[np.ndarray]:
    return [np.frombuffer(record, np.uint8) for record in records]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def refusal(path: Path) -> str:
    """Return the error for a file, and check that refusing it took little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError) as caught:
            read_record_images(path)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_record_file_matches_its_documented_bytes(tmp_path):
    path = tmp_path / "a.ffr"
    write_records(path, 3, arrays(RECORDS))
    assert path.read_bytes() == STORED
    assert record_file(RECORDS) == STORED  # the files that these tests make have them too
    assert [read_record(place).tobytes() for place in read_table(path)] == list(RECORDS)


def test_replaced_record_file_is_reopened(tmp_path):
    path = write(tmp_path / "a.ffr", image_file(index_entry(b"images/a.jpg")))
    (image,) = read_record_images(path)
    assert read_record(image.place).tobytes() == b"image 0"
    entries = [index_entry(b"images/b.jpg"), index_entry(b"images/c.jpg")]
    os.replace(write(tmp_path / "b.ffr", image_file(*entries)), path)
    images = read_record_images(path)
    assert [read_record(image.place).tobytes() for image in images] == [b"image 0", b"image 1"]


def test_record_file_stays_open_during_a_read(tmp_path, monkeypatch):
    write_records(tmp_path / "a.ffr", 3, arrays(RECORDS))
    place = read_table(tmp_path / "a.ffr").place(2)

    def read_late(*where: int) -> bytes:
        layout.forget_open_files()  # as by another thread that reads a dataset, or the 129th file
        return read_at(*where)

    monkeypatch.setattr(layout, "read_at", read_late)
    assert read_record(place).tobytes() == RECORDS[2]


def test_foreign_pickled_record_file_is_named_not_loaded(tmp_path):
    pickled = b"\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins"
    path = write(tmp_path / "theirs.ffr", record_file([pickled, pickled]))
    assert "pickles are never loaded" in refusal(path)


GOOD = index_entry(b"images/b.jpg")


# A file, and why it is refused.
BAD_FILES = {
    "empty": (b"", "has 0 bytes"),
    "a zero header": (bytes(48) + STORED[48:], "names 0 records"),
    "no records but bytes": (bytes.fromhex("69df2265") + bytes(9), "names 0 records"),
    "fewer records than none": (header([], [], -1) + bytes(64), "names -1 records"),
    "more records than bytes": (header([], [], 6) + bytes(71), "names 6 records"),
    "a wrong checksum of the header": (b"\xda" + STORED[1:], "checksum is 4fc14ddb"),
    "a wrong checksum of a record": (STORED[:-1] + b"8", "record 2 has the checksum"),
    "bytes behind the last record": (STORED + b"0", "record 2 has the checksum"),
    "cut off in the last record": (STORED[:-1], "record 2 has the checksum"),
    "cut off in the header": (STORED[:40], "names 3 records"),
    "offsets out of order": (header([0, 0, 0], [48, 51, 50]) + bytes(12), "record 1 starts at 51"),
    "an offset past the end": (header([0, 0], [36, 45]) + bytes(8), "record 1 starts at 45"),
    "a first record in the header": (header([0, 0], [12, 36]) + bytes(8), "the header ends at 36"),
} | {
    kind: (image_file(*entries, **changes), f"record 2 is an index that {reason}")
    for kind, entries, changes, reason in (
        ("a later version", [GOOD] * 2, {"version": 2}, "has version 2; version 1 is known"),
        ("too few images", [GOOD] * 2, {"number": 1}, "describes 1 image, and there are 2"),
        ("bytes behind", [GOOD, GOOD + b"0"], {}, "has 1 bytes after its last image"),
    )
} | {
    kind: (image_file(GOOD, entry), f"record 2 is an index that is wrong at image 1: {reason}")
    for kind, entry, reason in (
        ("cut off", b"\0" * 13, "it is cut off"),
        ("labels past the end", index_entry(b"a.jpg", num_labels=1), "5 bytes of name and 1 of"),
        ("fewer labels than none", index_entry(b"a.jpg", num_labels=-2), "5 bytes of name and -2"),
        ("an empty image", index_entry(b"a.jpg", size=(0, 0)), "it is 0x0 px"),
        ("an endless image", index_entry(b"a.jpg", size=(32, 2**32 - 1)), "it is 4294967295x32 px"),
        ("no UTF-8", index_entry(b"\xff.jpg"), "'utf-8' codec can't decode byte 0xff"),
        *((f"the name {name!r}", index_entry(name), "its name") for name in (
            b"", b"/etc/passwd", b"../a.jpg", b"images/../../a.jpg", b"images/./a.jpg",
            b"images//a.jpg", b"images/", b"..", b"..\\a.jpg", b"a\0.jpg", b"a\nb.jpg",
            b"a\xe2\x80\xa8b.jpg",  # a line separator of Unicode
            b"a\x1b[2J.jpg",  # would clear the terminal of `list`
            b"a.jpg ", b"a" * 1025, b"C:a.jpg", b"C:/a.jpg",  # on another drive of Windows
        )),
    )
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_record_file_is_refused_with_the_reason(tmp_path, kind):
    content, reason = BAD_FILES[kind]
    text = refusal(write(tmp_path / "bad.ffr", content))
    assert reason in text and "copy it again" in text and text.isprintable()


def test_only_a_letter_before_a_colon_is_a_drive(tmp_path):
    path = write(tmp_path / "good.ffr", image_file(GOOD, index_entry(b"1:x.jpg")))
    assert [image.entry.name for image in read_record_images(path)][-1] == "1:x.jpg"


def sparse(path: Path, start: bytes, size: int) -> Path:
    """Make a file of so many bytes that takes no space on disk."""
    path.write_bytes(start)
    os.truncate(path, size)
    return path


@pytest.mark.parametrize("number", [MAX_RECORDS, MAX_RECORDS + 1])
def test_sparse_header_is_refused_before_allocation(tmp_path, number):
    start = struct.pack("<Iq", 1, number)
    text = refusal(sparse(tmp_path / "hole.ffr", start, 12 + 12 * number))
    assert (
        "record 0 starts at 0" if number == MAX_RECORDS else f"names {number:,} records"
    ) in text


def test_oversized_records_and_indexes_are_refused_first(tmp_path):
    start = header([0], [24])
    path = sparse(tmp_path / "record.ffr", start, 24 + MAX_RECORD_BYTES + 1)
    (place,) = read_table(path)
    with pytest.raises(DatasetError, match=f"record 0 has {MAX_RECORD_BYTES + 1} bytes; at most"):
        read_record(place)
    path = sparse(tmp_path / "index.ffr", start + b"duet-img", 24 + MAX_INDEX_BYTES + 1)
    assert f"record 0 is an index of {MAX_INDEX_BYTES + 1} bytes" in refusal(path)
