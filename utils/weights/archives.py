"""Read files of PyTorch, and folders of OneFlow, zipped or not, as records and arrays.

Source: the files themselves.

- PyTorch since 1.6 (written by 2.13): a zip of PREFIX/data.pkl and PREFIX/data/KEY.
- oneflow.save of 0.9.0: a pickle `pickled_data` of {protocol_version: 1, data: object}, and for
  each tensor `NAME/meta`, a text with its dims and data_type, and `NAME/out`, its little-endian
  bytes in C order.
"""

import functools
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from duet.utils.errors import UserError, as_user_error, brief
from duet.utils.files.regular import ZIP_ERRORS, open_regular, read_bytes
from duet.utils.project import WEIGHTS_FILES
from duet.utils.text import count
from duet.utils.weights.checkpoint import MAX_WEIGHTS_BYTES
from duet.utils.weights.pickle_reader import (
    STORAGE_DTYPES,
    UNTYPED_STORAGE,
    Name,
    Record,
    read_pickle,
)
from duet.utils.weights.tensors import (
    TORCH_PARAMETER,
    TORCH_TENSORS,
    TORCH_UNTYPED_TENSOR,
    ByteBudget,
    Contents,
    StoredArray,
    contiguous_strides,
    stored_dtype,
    strided_array,
)

MAX_EXPANSION = 4  # uncompressed bytes for each byte of an archive; weights hardly compress
MAX_MEMBERS = 100_000


@dataclass(frozen=True)
class Members:
    sizes: Mapping[str, int]  # uncompressed, by name, in archive order
    size: int  # total bytes, which limit the size of all tensors
    load: Callable[[str], bytes]

    def read(self, name: str, most: int = MAX_WEIGHTS_BYTES) -> bytes:
        """Return the bytes of a member; UserError if it is missing, damaged or over `most`."""
        if name not in self.sizes:
            raise UserError(f"it lacks {brief(name)}")
        if self.sizes[name] > most:
            raise UserError(
                f"{brief(name)} has {self.sizes[name]:,} bytes; at most {most:,} are read"
            )
        return self.load(name)


def members_of_folder(folder: Path) -> Members:
    entries = (path for depth in ("*/*", "*") for path in folder.glob(depth))
    found = list(islice(entries, MAX_MEMBERS + 1))
    if len(found) > MAX_MEMBERS:
        raise UserError(f"the folder holds over {count(MAX_MEMBERS, 'entry', 'entries')}")
    files = sorted(path for path in found if path.is_file())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    return Members(
        sizes, sum(sizes.values()), lambda name: read_bytes(folder / name, MAX_WEIGHTS_BYTES)
    )


@contextmanager
def open_zip(path: Path) -> Iterator[Members]:
    with open_regular(path, MAX_WEIGHTS_BYTES) as file:
        with as_user_error("damaged zip archive", *ZIP_ERRORS):
            archive = zipfile.ZipFile(file)
        with archive:
            sizes = _sizes_of(archive, file_size := os.fstat(file.fileno()).st_size)
            size = max(file_size, sum(sizes.values()))
            yield Members(sizes, size, lambda name: _read_member(archive, archive.getinfo(name)))


def _sizes_of(archive: zipfile.ZipFile, file_size: int) -> dict[str, int]:
    """Return the size of each member; UserError if the archive cannot be a weights file."""
    entries = archive.infolist()
    sizes = {entry.filename: entry.file_size for entry in entries}
    if len(entries) > MAX_MEMBERS or len(sizes) < len(entries):
        raise UserError("the archive has too many members, or two of one name")
    if any(entry.flag_bits & 1 for entry in entries):
        raise UserError("the archive is encrypted; save it without a password")
    if sum(sizes.values()) > MAX_EXPANSION * file_size:
        raise UserError(
            f"the archive of {file_size:,} bytes would expand to {sum(sizes.values()):,}, over "
            f"{MAX_EXPANSION} times its size; no weights file does"
        )
    return sizes


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a member, whose checksum is verified."""
    name = brief(entry.filename)
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UserError(f"{name} is compressed in a way that is not read")
    damaged = f"damaged zip archive, {name}"
    with as_user_error(damaged, *ZIP_ERRORS), archive.open(entry) as file:
        # A size is passed, since an unsized read would decompress without a bound.
        data = file.read(entry.file_size)
        extra = file.read(1)  # at the end the checksum is compared
    if len(data) != entry.file_size or extra:
        raise UserError(f"{damaged} has not the size it declares")
    return data


MAX_KEY = 100  # characters of a storage's name; they are numbers
STORAGE = "storage"


def read_torch_zip(members: Members) -> Contents:
    """Read a zip of torch.save; read its arrays while the archive is open."""
    pickles = [name for name in members.sizes if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise UserError(
            f"the archive holds {count(len(pickles), 'file')} data.pkl; torch.save writes one"
        )
    prefix = pickles[0].removesuffix("data.pkl")
    if f"{prefix}constants.pkl" in members.sizes:
        raise UserError(
            "it is a TorchScript export, a program; give the .pt checkpoint it was exported from"
        )
    order = f"{prefix}byteorder"
    if order in members.sizes and members.read(order) != b"little":
        raise UserError("it was saved on a big-endian machine; only little-endian files are read")
    root = read_pickle(members.read(pickles[0]), _check_storage)
    read_storage = functools.cache(lambda key: members.read(f"{prefix}data/{key}"))
    budget = ByteBudget(members.size)

    def read_tensor(record: Record) -> StoredArray:
        storage, offset, shape, strides = _tensor_parts(record)
        kind, key, count = storage.arguments
        if kind not in STORAGE_DTYPES:
            raise UserError("a tensor without a dtype")
        dtype, data = STORAGE_DTYPES[kind], read_storage(key)
        size = stored_dtype(dtype).itemsize
        if len(data) != count * size:
            raise UserError(
                f"storage {brief(key)} declares {brief(count)} elements of {size} bytes and has "
                f"{len(data)} bytes"
            )
        return strided_array(data, dtype, offset, shape, strides, budget)

    return Contents("PyTorch zip archive", root, read_tensor)


def _check_storage(identity: Any) -> Record:
    """Check ('storage', type, key, device, elements[, no view]) and return it as a record."""
    kind = identity[1] if isinstance(identity, tuple) and len(identity) in (5, 6) else None
    if (
        not isinstance(kind, Name)
        or kind.name not in (*STORAGE_DTYPES, UNTYPED_STORAGE)
        or identity[0] != "storage"
        or not isinstance(identity[2], str)
        or len(identity[2]) > MAX_KEY
        or type(identity[4]) is not int
        or identity[5:] not in ((), (None,))
    ):
        raise UserError(f"a persistent id that is no storage of a known type: {brief(identity)}")
    return Record(STORAGE, (kind.name, identity[2], identity[4]))


def _tensor_parts(record: Record) -> tuple[Any, ...]:
    """Return a tensor's storage, offset, shape and strides; UserError if it has none."""
    if record.kind == TORCH_PARAMETER and record.arguments:
        record = record.arguments[0]
    if isinstance(record, Record) and record.kind == TORCH_UNTYPED_TENSOR:
        named = [part.name for part in record.arguments if isinstance(part, Name)]
        raise UserError(
            f"tensors of the type {', '.join(named)[:80] or 'unknown'}, which is not read; save "
            "the weights as float16 or float32"
        )
    parts = record.arguments[:4] if isinstance(record, Record) else ()
    is_whole = len(parts) == 4 and isinstance(parts[0], Record) and parts[0].kind == STORAGE
    if not is_whole or record.kind not in TORCH_TENSORS:
        raise UserError("a parameter that holds no tensor, or a tensor without a storage")
    return parts


ZIP_START = b"PK\x03\x04"
PICKLE_START = b"\x80"
PICKLE_NAME = "pickled_data"
PROTOCOL_VERSION = 1
DTYPES = {
    "kFloat": "<f4",
    "kDouble": "<f8",
    "kFloat16": "<f2",
    "kBFloat16": "bfloat16",
    "kInt8": "|i1",
    "kInt32": "<i4",
    "kInt64": "<i8",
    "kUInt8": "|u1",
    "kBool": "|b1",
}
META = re.compile(r"shape \{((?:\s+dim: \d{1,12})*)\s*\}\s+data_type: (k\w{1,16})\s*")
MAX_META_BYTES = 1000
TENSOR_NAME = re.compile(r"[A-Za-z0-9_.]{1,100}")


@contextmanager
def open_foreign(path: Path) -> Iterator[Contents]:
    """Yield the records of a file or folder; read their arrays inside the with block only."""
    if path.is_dir():
        yield read_oneflow(members_of_folder(path))
        return
    with open_regular(path, MAX_WEIGHTS_BYTES) as file:
        start = file.read(len(ZIP_START))
    if start == ZIP_START:
        with open_zip(path) as members:
            is_oneflow = any(name.split("/")[-1] == PICKLE_NAME for name in members.sizes)
            yield read_oneflow(members) if is_oneflow else read_torch_zip(members)
    elif start.startswith(PICKLE_START):
        raise UserError(
            "a bare pickle, or a file of PyTorch before 1.6; if you trust it, load it in PyTorch "
            "and save it again with torch.save"
        )
    else:
        raise UserError(f"unknown format; accepted: {WEIGHTS_FILES}, or what oneflow.save wrote")


def read_oneflow(members: Members) -> Contents:
    """Read a directory of oneflow.save; read its arrays while its archive is open."""
    pickles = [name for name in members.sizes if name.split("/")[-1] == PICKLE_NAME]
    if len(pickles) != 1:
        raise UserError(
            f"not written by oneflow.save, which leaves one {PICKLE_NAME} (found: {len(pickles)}); "
            "give a weights file"
        )
    prefix = pickles[0].removesuffix(PICKLE_NAME)
    document = read_pickle(members.read(pickles[0]))
    if not isinstance(document, dict) or document.get("protocol_version") != PROTOCOL_VERSION:
        raise UserError(f"it was not written by oneflow.save of protocol {PROTOCOL_VERSION}")
    budget = ByteBudget(members.size)

    def read_tensor(record: Record) -> StoredArray:
        name = _tensor_name(record.state)
        dtype, shape = _parse_meta(members.read(f"{prefix}{name}/meta", MAX_META_BYTES))
        data = members.read(f"{prefix}{name}/out")
        stored = strided_array(data, dtype, 0, shape, contiguous_strides(shape), budget)
        if stored.array.size * stored_dtype(dtype).itemsize != len(data):
            raise UserError(f"tensor {name}: shape {list(shape)} and {len(data)} bytes do not fit")
        return stored

    return Contents("OneFlow directory", document.get("data"), read_tensor)


def _tensor_name(state: object) -> str:
    name = state.get("path") if isinstance(state, dict) else None
    if not isinstance(name, str) or not TENSOR_NAME.fullmatch(name) or set(name) == {"."}:
        raise UserError(f"a tensor kept at {brief(name)}; accepted: a plain name")
    return name


def _parse_meta(text: bytes) -> tuple[str, tuple[int, ...]]:
    """Parse `shape { dim: 2 dim: 3 } data_type: kFloat`."""
    found = META.fullmatch(text.decode("ascii", errors="replace"))
    if found is None or found[2] not in DTYPES:
        raise UserError(f"a tensor described as {text[:80]!r}; accepted: {', '.join(DTYPES)}")
    return DTYPES[found[2]], tuple(int(size) for size in re.findall(r"\d+", found[1]))
