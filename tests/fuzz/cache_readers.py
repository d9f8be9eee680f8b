"""What was kept of a scan and of annotations: files of our own, where anyone may have written."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tests.fuzz.reader import MIB, Reader
from utils.data.sources.formats.annotations import AnnotationsBuilder
from utils.data.sources.formats.kept_annotations import _annotations_of, _arrays_of
from utils.data.sources.known_scans import KnownScans
from utils.data.sources.label_cache import LabelCache, version
from utils.data.sources.label_file import parse_labels
from utils.data.sources.labels import report_usable
from utils.data.sources.scan_arrays import Scanned, arrays_of
from utils.errors import DatasetError
from utils.files.array_cache import VARIABLE, _checksum, read_arrays, write_arrays

NUM_CLASSES = 3
ANNOTATIONS_VERSION = b"fuzz"
TOKENS = (
    b'"I64"', b'"F64"', b'"F32"', b'"U8"', b'"BF16"', b'"shape":[', b'"data_offsets":[',
    struct.pack("<q", -1), struct.pack("<q", 2**62), struct.pack("<q", 1), struct.pack("<f", 2.0),
    b"\xff\xff\xc0\x7f", b"\xed\xa0\x80",
)  # fmt: skip


def in_cache(kind: str, read: Callable[[str], object]) -> Callable[[Path], object]:
    """Return what reads a file as one of the cache, by its name there."""

    def read_there(path: Path) -> object:
        folder = path.parent / "cache"
        os.environ[VARIABLE] = str(folder)
        (folder / kind).mkdir(parents=True, exist_ok=True)
        (folder / kind / "name.safetensors").write_bytes(path.read_bytes())
        return read("name")

    return read_there


def use_scans(name: str) -> object:
    """Take all that is known for what a scan found, as a second run does."""
    known = LabelCache(name).read(NUM_CLASSES)
    keys = known.arrays.keys
    rows = known.find(keys)
    found = known.arrays.select(rows[rows >= 0])
    try:
        samples = report_usable([Path("a.jpg")] * len(found.keys), found).samples
    except DatasetError:
        return None
    return [(sample.class_index.sum(), sample.polygons_norm) for sample in samples]


def use_annotations(name: str) -> object:
    arrays = read_arrays("annotations", name, ANNOTATIONS_VERSION)
    return None if arrays is None else _annotations_of(arrays)


def written(kind: str, arrays: Mapping[str, np.ndarray], of_version: bytes) -> list[bytes]:
    """Return the content of the file that keeps these arrays."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = folder
        write_arrays(kind, "name", of_version, arrays)
        return [Path(folder, kind, "name.safetensors").read_bytes()]


def scans() -> list[bytes]:
    texts = (b"0 0.5 0.5 0.25 0.25\n1 0.1 0.1 0.3 0.1 0.2 0.4\n", b"", b"2 0.5 0.5 1 1\n")
    results = [Scanned((40, 60), parse_labels(text, NUM_CLASSES), "") for text in texts]
    results += [Scanned((0, 0), None, "größe.jpg: left out: truncated")]
    keys = [KnownScans.key(bytes([number])) for number in range(len(results))]
    found = arrays_of(results)._replace(keys=np.frombuffer(b"".join(keys), np.int64).reshape(-1, 2))
    return written("labels", found._asdict(), version())


def annotations() -> list[bytes]:
    builder = AnnotationsBuilder(("cat",))
    builder.image(Path("/images/größe.jpg"), (40, 60))
    builder.outline("dog", np.array([[1.0, 2], [3, 4], [0, 9]]))
    builder.leave_out("crowds")
    builder.image(Path("b.jpg"))
    builder.refuse("why")
    return written("annotations", _arrays_of(builder.build()), ANNOTATIONS_VERSION)


def sealed(of_version: Callable[[], bytes]) -> Callable[[bytes], bytes]:
    """Return what puts the checksum right, if the arrays can be read at all."""

    def seal(content: bytes) -> bytes:
        try:
            arrays = load(content)
            arrays.pop("checksum", None)
            checksum = np.frombuffer(_checksum(arrays, of_version()), np.uint8)
            return save({**arrays, "checksum": checksum})
        except (SafetensorError, ValueError, KeyError, TypeError):
            return content

    return seal


CACHE_READERS = {
    "kept-scans": Reader(
        in_cache("labels", use_scans), scans, "mutant.safetensors", TOKENS, sealed(version),
        memory_bytes=64 * MIB,
    ),
    "kept-annotations": Reader(
        in_cache("annotations", use_annotations), annotations, "mutant.safetensors", TOKENS,
        sealed(lambda: ANNOTATIONS_VERSION), memory_bytes=64 * MIB,
    ),
}  # fmt: skip
