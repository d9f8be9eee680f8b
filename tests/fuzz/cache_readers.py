"""Arrays kept for the next run: a file that is not as it was written counts as absent."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

import numpy as np

from tests.fuzz.reader import MIB, Reader
from utils.files.array_cache import VARIABLE, read_arrays, write_arrays

ARRAYS = {"a": np.arange(12).reshape(4, 3), "b": np.zeros((2, 4), np.float32)}
TOKENS = (
    b'"I64"', b'"F64"', b'"F32"', b'"U8"', b'"BF16"', b'"shape":[', b'"data_offsets":[',
    struct.pack("<q", -1), struct.pack("<q", 2**62), struct.pack("<q", 1), struct.pack("<f", 2.0),
)  # fmt: skip


def read(path: Path) -> object:
    """Read a file as one of the cache."""
    folder = path.parent / "cache"
    os.environ[VARIABLE] = str(folder)
    (folder / "kind").mkdir(parents=True, exist_ok=True)
    (folder / "kind" / "name.safetensors").write_bytes(path.read_bytes())
    found = read_arrays("kind", "name", b"version")
    assert found is None or all((found[name] == ARRAYS[name]).all() for name in ARRAYS)
    return found


def written() -> list[bytes]:
    """Return the content of a file that keeps arrays."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = folder
        write_arrays("kind", "name", b"version", ARRAYS)
        return [Path(folder, "kind", "name.safetensors").read_bytes()]


CACHE_READERS = {
    "kept-arrays": Reader(read, written, "mutant.safetensors", TOKENS, memory_bytes=64 * MIB)
}
