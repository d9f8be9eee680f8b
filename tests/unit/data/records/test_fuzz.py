"""Record files with random damage: every damage is found, and named by an error of ours."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.unit.data.records.record_files import index_entry, index_record, record_file, records_of
from utils.data.records.command.inspection import describe_file, find_damages
from utils.data.records.reading import read_record
from utils.data.sources.labels import scan_samples
from utils.data.sources.record_images import read_record_images
from utils.errors import DatasetError

ENTRIES = [
    index_entry(b"images/a.jpg", labels=b"0 0.5 0.5 0.25 0.25\n"),
    index_entry("images/größe.png".encode(), num_labels=-1),
    index_entry(b"images/c.webp", labels=b"1 0.1 0.1 0.3 0.1 0.2 0.4\n1 0.5 0.5 0.1 0.1\n"),
]
WHOLE = record_file([b"\xff\xd8 one", b"", b"three" * 9, index_record(ENTRIES)])
NUM_TRIALS = 300


def use(path: Path) -> str:
    """Do all that is done with a record file; return the error of ours that ended it, or ""."""
    try:
        list(describe_file(path))
        images = read_record_images(path)
        for image in images:
            read_record(image.place)
        scan_samples(images, num_classes=2)
    except DatasetError as error:
        return str(error)
    return ""


@pytest.fixture
def generator():
    return np.random.Generator(np.random.Philox(key=5))


def flip_bit(content: bytes, position: int) -> bytes:
    changed = bytearray(content)
    changed[position // 8] ^= 1 << position % 8
    return bytes(changed)


def test_the_undamaged_file_is_fine(tmp_path):
    path = tmp_path / "a.ffr"
    path.write_bytes(WHOLE)
    assert use(path) == ""
    assert find_damages(path) == []


def test_every_flipped_bit_is_found(tmp_path, generator):
    path = tmp_path / "a.ffr"
    for position in generator.choice(8 * len(WHOLE), NUM_TRIALS, replace=False).tolist():
        path.write_bytes(flip_bit(WHOLE, position))
        assert str(path) in use(path), f"bit {position}"
        assert find_damages(path) != [], f"bit {position}"


def test_every_cut_is_found(tmp_path):
    path = tmp_path / "a.ffr"
    for length in range(len(WHOLE)):
        path.write_bytes(WHOLE[:length])
        assert str(path) in use(path), f"{length} bytes"
        assert find_damages(path) != [], f"{length} bytes"


def test_a_forged_index_with_right_checksums_ends_in_nothing_but_an_error_of_ours(
    tmp_path, generator
):
    path = tmp_path / "a.ffr"
    *images, index = records_of(WHOLE)
    outcomes = set()
    for position in generator.choice(8 * len(index), NUM_TRIALS, replace=False).tolist():
        path.write_bytes(record_file([*images, flip_bit(index, position)]))
        outcomes.add(use(path).partition(": ")[2][:30])
        assert find_damages(path) == [] or "is an index that" in find_damages(path)[0]
    assert len(outcomes) > 3  # among them "": a changed letter of a name cannot be noticed


def test_a_forged_header_with_a_right_checksum_is_always_found(tmp_path, generator):
    path = tmp_path / "a.ffr"
    header_bits = range(32, 8 * (12 + 12 * 4))
    for position in generator.choice(header_bits, NUM_TRIALS, replace=False).tolist():
        changed = bytearray(flip_bit(WHOLE, position))
        number = struct.unpack_from("<q", changed, 4)[0]
        covered = changed[4 : 12 + 12 * number] if 0 <= number < 99 else changed[4:]
        struct.pack_into("<I", changed, 0, zlib.crc32(covered))
        path.write_bytes(changed)
        assert str(path) in use(path), f"bit {position}"


def test_random_bytes_are_refused(tmp_path, generator):
    path = tmp_path / "a.ffr"
    for _ in range(NUM_TRIALS):
        path.write_bytes(generator.bytes(int(generator.integers(1, 200))))
        assert str(path) in use(path)
