"""Directories of oneflow.save, zipped or not, -> records and arrays.

Source: directories written by OneFlow 0.9.0: a pickle `pickled_data` of {protocol_version: 1, data:
object}, and for each tensor `NAME/meta`, a text with its dims and data_type, and `NAME/out`, its
little-endian bytes in C order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duet.utils.errors import UserError, brief
from duet.utils.regular_files import open_regular, read_bytes
from duet.utils.text import count
from duet.utils.weights.accepted_names import ONEFLOW_NAMES
from duet.utils.weights.checkpoint import MAX_WEIGHTS_BYTES
from duet.utils.weights.members import Members, members_of_folder, open_zip
from duet.utils.weights.pickle_reader import Record, read_pickle
from duet.utils.weights.tensors import (
    ByteBudget,
    Contents,
    StoredArray,
    contiguous_strides,
    item_size,
    strided_array,
)
from duet.utils.weights.torch_archive import read_torch_legacy, read_torch_zip

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
    """Yield the records of a file or directory; arrays can be read inside the with block only.

    Raises:
        UserError: of no known format, damaged, or asking for what is not accepted.
    """
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
        yield read_torch_legacy(read_bytes(path, MAX_WEIGHTS_BYTES))
    else:
        raise UserError(
            "no known format; accepted: .safetensors of a training run, .pt of the public "
            "YOLOv5, a directory of oneflow.save or a zip of one"
        )


def read_oneflow(members: Members) -> Contents:
    """Read a directory of oneflow.save; the arrays can be read while its archive is open."""
    pickles = [name for name in members.sizes if name.split("/")[-1] == PICKLE_NAME]
    if len(pickles) != 1:
        raise UserError(
            f"{count(len(pickles), 'file')} {PICKLE_NAME} in it, and a folder of oneflow.save has "
            "one; name such a folder, or a weights file"
        )
    prefix = pickles[0].removesuffix(PICKLE_NAME)
    document, _ = read_pickle(members.read(pickles[0]), ONEFLOW_NAMES)
    if not isinstance(document, dict) or document.get("protocol_version") != PROTOCOL_VERSION:
        raise UserError(f"it was not written by oneflow.save of protocol {PROTOCOL_VERSION}")
    budget = ByteBudget(members.size)

    def read_tensor(record: Record) -> StoredArray:
        name = _tensor_name(record.state)
        dtype, shape = _parse_meta(members.read(f"{prefix}{name}/meta", MAX_META_BYTES))
        data = members.read(f"{prefix}{name}/out")
        stored = strided_array(data, dtype, 0, shape, contiguous_strides(shape), budget)
        if stored.array.size * item_size(dtype) != len(data):
            raise UserError(f"tensor {name}: shape {list(shape)} and {len(data)} bytes do not fit")
        return stored

    return Contents("OneFlow directory", document.get("data"), read_tensor)


def _tensor_name(state: Any) -> str:
    name = state.get("path") if isinstance(state, dict) else None
    if not isinstance(name, str) or not TENSOR_NAME.fullmatch(name) or set(name) == {"."}:
        raise UserError(f"a tensor kept at {brief(name)}; accepted: a plain name")
    return name


def _parse_meta(text: bytes) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and shape of `shape { dim: 2 dim: 3 } data_type: kFloat`."""
    found = META.fullmatch(text.decode("ascii", errors="replace"))
    if found is None or found[2] not in DTYPES:
        raise UserError(f"a tensor described as {text[:80]!r}; accepted: {', '.join(DTYPES)}")
    return DTYPES[found[2]], tuple(int(size) for size in re.findall(r"\d+", found[1]))
