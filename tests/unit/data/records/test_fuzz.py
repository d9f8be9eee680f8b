"""Record files with random damage: every damage is found, and named by an error of ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.data.records.record_files import index_entry, index_record, record_file
from utils.data.records.__main__ import describe_file, find_damages
from utils.data.records.layout import read_record
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
