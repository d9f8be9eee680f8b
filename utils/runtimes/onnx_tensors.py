"""The tensors of an ONNX file: as large as it says, in the file or in one of its folder.

Before: `onnx_reading.py`. After: `onnx_sizes.py`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from utils.errors import UserError, brief
from utils.files.regular import open_regular
from utils.optional import import_optional

# What an attribute of a node may hold, by the names of ONNX's fields: no graphs, sparse tensors or
# types. Sparse tensors can name files and addresses too.
ATTRIBUTE_FIELDS = {
    "name", "doc_string", "type", "f", "i", "s", "t", "floats", "ints", "strings", "tensors",
}  # fmt: skip
MAX_BYTES = (1 << 31) - 1  # of a message of protobuf, with all external data in it
ROOM = 64  # bytes, by which the lengths in a message grow
MOST_SIDES = 16  # of a shape; NumPy takes 32
# Where a tensor's numbers lie that are not in `raw_data`, by type; its types are the accepted ones.
FIELDS = {
    "FLOAT": "float_data",
    "DOUBLE": "double_data",
    "INT64": "int64_data",
    "UINT32": "uint64_data",
    "UINT64": "uint64_data",
    **dict.fromkeys(
        ("INT8", "UINT8", "INT16", "UINT16", "INT32", "BOOL", "FLOAT16", "BFLOAT16"), "int32_data"
    ),
}
BYTES = {
    "FLOAT": 4, "DOUBLE": 8, "INT64": 8, "UINT64": 8, "INT32": 4, "UINT32": 4, "INT16": 2,
    "UINT16": 2, "FLOAT16": 2, "BFLOAT16": 2, "INT8": 1, "UINT8": 1, "BOOL": 1,
}  # fmt: skip


def all_tensors(model: Any) -> Iterator[Any]:
    """Yield every tensor of a model's graph, in nodes too."""
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def check_attributes(model: Any) -> None:
    """Raise UserError for an attribute of a kind that detectors do not have."""
    for node in model.graph.node:
        for attribute in node.attribute:
            for field, _ in attribute.ListFields():
                if field.name not in ATTRIBUTE_FIELDS:
                    raise UserError(
                        f"its operator {brief(node.op_type)} has an attribute of a kind that is "
                        f"not supported, {field.name}; a detector has numbers, texts and tensors"
                    )


def check_tensors(model: Any, folder: Path) -> None:
    """Check that each tensor has as many numbers as it says; read those of other files.

    Args:
        folder: of the model: external data may lie in it and nowhere else.

    Raises:
        UserError: a tensor is damaged, of a type that is not supported, or its data elsewhere; a
            node has another attribute than numbers, texts and tensors.
    """
    onnx = import_optional("onnx", "an ONNX file")
    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    check_attributes(model)
    left = MAX_BYTES - model.ByteSize() - ROOM
    for tensor in all_tensors(model):
        kind = names.get(tensor.data_type, "")
        if kind not in FIELDS:
            known = kind or tensor.data_type
            raise UserError(
                f"its tensor {brief(tensor.name)} is of type {known}, which is not supported"
            )
        # Beside a 0, the others are limited too: NumPy multiplies them.
        sides = math.prod(max(size, 1) for size in tensor.dims)
        huge = 0 in tensor.dims and sides > MAX_BYTES
        if len(tensor.dims) > MOST_SIDES or min(tensor.dims, default=0) < 0 or huge:
            raise UserError(f"its tensor {brief(tensor.name)} has the shape {brief(tensor.dims)}")
        size = math.prod(tensor.dims) * BYTES[kind]
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            if size > left:
                raise UserError(f"it has more than {MAX_BYTES:,} bytes with its external data")
            left -= size
            _read_external(tensor, folder, size)
        found = len(tensor.raw_data)
        if not tensor.HasField("raw_data"):
            found = len(getattr(tensor, FIELDS[kind])) * BYTES[kind]
        if found != size:
            raise UserError(
                f"damaged: its tensor {brief(tensor.name)} has {found:,} bytes, and its shape "
                f"{brief(list(tensor.dims))} needs {size:,}"
            )


def _read_external(tensor: Any, folder: Path, size: int) -> None:
    """Move a tensor's numbers from the file that it names into the tensor."""
    given = {entry.key: str(entry.value) for entry in tensor.external_data}
    location = given.get("location", "")
    path = folder / location
    if location in ("", ".", "..") or os.sep in location or "\0" in location or path.is_symlink():
        raise UserError(
            f"its tensor {brief(tensor.name)} lies in {brief(location)}; external data are read "
            "only from a file in the model's folder that is no link: save it as one file"
        )
    try:
        offset = int(given.get("offset", "0"))
        length = int(given.get("length", str(size)))
    except ValueError:
        offset = length = -1
    if length != size or offset < 0:
        raise UserError(f"its tensor {brief(tensor.name)} names a wrong part of {brief(location)}")
    try:
        with open_regular(path) as file:
            file.seek(min(offset, MAX_BYTES))
            content = file.read(size) if os.fstat(file.fileno()).st_size >= offset + size else b""
    except OSError as error:
        raise UserError(f"its external data {brief(location)}: {error.strerror}") from error
    if len(content) != size:
        raise UserError(f"damaged: {brief(location)} ends before {offset + size:,} bytes")
    tensor.raw_data = content
    tensor.ClearField("external_data")
    tensor.data_location = 0
