"""PyTorch's files, zip archives since 1.6 and the format before, -> records and arrays.

Source: the files themselves, written by PyTorch 2.13 and 1.x; a zip holds PREFIX/data.pkl and
PREFIX/data/KEY, a legacy file five pickles (magic number, version, system, object, keys of the
storages) and then, for each key, a count and raw bytes.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

from duet.utils.errors import UserError, brief
from duet.utils.text import count
from duet.utils.weights.accepted_names import (
    NOTHING,
    STORAGE_DTYPES,
    TORCH_NAMES,
    UNTYPED_STORAGE,
)
from duet.utils.weights.members import Members
from duet.utils.weights.pickle_reader import Name, Record, read_pickle
from duet.utils.weights.tensors import (
    TORCH_PARAMETER,
    TORCH_TENSORS,
    TORCH_UNTYPED_TENSOR,
    ByteBudget,
    Contents,
    StoredArray,
    item_size,
    strided_array,
)

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
LEGACY_VERSION = 1001
ITEM_SIZES = {name: item_size(dtype) for name, dtype in STORAGE_DTYPES.items()}
ITEM_SIZES[UNTYPED_STORAGE] = 1
MAX_KEY = 100  # characters of a storage's name; they are numbers
STORAGE = "storage"


def read_torch_zip(members: Members) -> Contents:
    """Read a zip of torch.save; the arrays can be read while the archive is open."""
    pickles = [name for name in members.sizes if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise UserError(
            f"the archive holds {count(len(pickles), 'file')} data.pkl; torch.save writes one"
        )
    prefix = pickles[0].removesuffix("data.pkl")
    if f"{prefix}constants.pkl" in members.sizes:
        raise UserError(
            "it is a TorchScript export, a program; give the .pt checkpoint it was made from"
        )
    order = f"{prefix}byteorder"
    if order in members.sizes and members.read(order) != b"little":
        raise UserError("it was saved on a big-endian machine; only little-endian files are read")
    root, _ = read_pickle(members.read(pickles[0]), TORCH_NAMES, _check_storage)
    read_storage = functools.cache(lambda key: members.read(f"{prefix}data/{key}"))
    return Contents(
        "PyTorch zip archive", root, _tensor_reader(read_storage, ByteBudget(members.size))
    )


def read_torch_legacy(data: bytes) -> Contents:
    """Read a file of torch.save before PyTorch 1.6, or of _use_new_zipfile_serialization=False."""
    magic, position = read_pickle(data, NOTHING)
    if magic != MAGIC_NUMBER:
        raise UserError("a bare pickle; only files of torch.save and oneflow.save are read")
    version, position = read_pickle(data, NOTHING, start=position)
    system, position = read_pickle(data, NOTHING, start=position)
    if version != LEGACY_VERSION or not isinstance(system, dict):
        raise UserError(f"legacy version {brief(version)}; {LEGACY_VERSION} is read")
    if system.get("little_endian") is not True:
        raise UserError("it was saved on a big-endian machine; only little-endian files are read")
    declared: dict[str, int] = {}

    def remember(identity: Any) -> Any:
        if isinstance(identity, tuple) and len(identity) == 4 and identity[0] == "module":
            return identity[1]  # a class; its source text is not read
        storage = _check_storage(identity)
        declared[identity[2]] = ITEM_SIZES[identity[1].name]
        return storage

    root, position = read_pickle(data, TORCH_NAMES, remember, position)
    keys, position = read_pickle(data, NOTHING, start=position)
    places = _locate_storages(memoryview(data), position, keys, declared)
    return Contents("PyTorch legacy file", root, _tensor_reader(places.get, ByteBudget(len(data))))


def _locate_storages(
    data: memoryview, position: int, keys: Any, item_sizes: dict[str, int]
) -> dict[str, memoryview]:
    """Return the bytes of each storage, which lie behind the pickles of a legacy file."""
    places = {}
    for key in keys if isinstance(keys, list) else [keys]:
        size = item_sizes.get(key) if isinstance(key, str) else None
        if size is None or position + 8 > len(data):
            raise UserError(f"damaged legacy file: storage {brief(key)}")
        (count,) = struct.unpack_from("<q", data, position)
        start, position = position + 8, position + 8 + count * size
        if count < 0 or position > len(data):
            raise UserError(f"damaged legacy file: it ends inside storage {brief(key)}")
        places[key] = data[start:position]
    return places


def _check_storage(identity: Any) -> Record:
    """Check ('storage', type, key, device, elements[, no view]) and return it as a record."""
    kind = identity[1] if isinstance(identity, tuple) and len(identity) in (5, 6) else None
    if (
        not isinstance(kind, Name)
        or kind.name not in ITEM_SIZES
        or identity[0] != "storage"
        or not isinstance(identity[2], str)
        or len(identity[2]) > MAX_KEY
        or type(identity[4]) is not int
        or identity[5:] not in ((), (None,))
    ):
        raise UserError(f"a persistent id that is no storage of a known type: {brief(identity)}")
    return Record(STORAGE, (kind.name, identity[2], identity[4]))


def _tensor_reader(
    read_storage: Callable[[str], bytes | memoryview | None], budget: ByteBudget
) -> Callable[[Record], StoredArray]:
    def read_tensor(record: Record) -> StoredArray:
        storage, offset, shape, strides = _tensor_parts(record)
        kind, key, count = storage.arguments
        if kind not in STORAGE_DTYPES:
            raise UserError("a tensor without a dtype")
        data = read_storage(key)
        if data is None or len(data) != count * ITEM_SIZES[kind]:
            found = "no" if data is None else len(data)
            raise UserError(
                f"storage {brief(key)} declares {brief(count)} elements of {ITEM_SIZES[kind]} "
                f"bytes and has {found} bytes"
            )
        return strided_array(data, STORAGE_DTYPES[kind], offset, shape, strides, budget)

    return read_tensor


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
