"""An ONNX file -> a model that can be run: checked so that it takes bounded time and memory.

Before: --weights names the file. After: `onnx_runtime.py`, or another runtime that reads ONNX.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from utils.errors import UserError, brief
from utils.files.regular import read_bytes
from utils.optional import import_optional
from utils.runtimes.foreign_metadata import EXAMPLE, foreign_metadata, is_foreign
from utils.runtimes.metadata import PIXELS, Metadata, metadata_of
from utils.runtimes.onnx_sizes import GraphSizes
from utils.runtimes.onnx_tensors import MAX_BYTES, check_tensors
from utils.runtimes.shapes import require_shapes

MOST_TEXTS = 1000  # of metadata
INPUTS = {"FLOAT": "float32", "FLOAT16": "float16", "UINT8": "uint8"}  # NumPy's names


class OnnxModel(NamedTuple):
    """A checked ONNX file."""

    content: bytes  # of one message, without external data
    metadata: Metadata
    input_type: str  # NumPy's name
    sizes: GraphSizes  # to check for each shape of images


def read_onnx(path: Path) -> OnnxModel:
    """Read and check an ONNX file.

    Raises:
        UserError: damaged, of another task, or with what is not supported; `onnx_operators.py`,
            `onnx_tensors.py` and `onnx_sizes.py` say what.
        OSError: it cannot be read.
    """
    onnx = import_optional("onnx", f"--weights {path}")
    model = _parsed(onnx, read_bytes(path, MAX_BYTES))
    check_tensors(model, path.parent)
    sizes = GraphSizes(model)
    texts = _texts_of(model)
    (given,) = model.graph.input
    shape = _free_shape(given)
    outputs = [_free_shape(output) for output in model.graph.output]
    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    kind = INPUTS.get(names.get(given.type.tensor_type.elem_type, ""), "")
    if is_foreign(texts):
        metadata = foreign_metadata(texts, shape, kind, outputs, _last_operator(model.graph))
    else:
        metadata = metadata_of(texts)
    require_shapes(metadata, shape, *outputs)
    if kind not in (("uint8",) if metadata.image == PIXELS else ("float32", "float16")):
        raise UserError(f"it takes numbers of a type that is not its metadata's {metadata.image}")
    sizes.check(_example(metadata))
    return OnnxModel(model.SerializeToString(), metadata, kind, sizes)


def _parsed(onnx: Any, content: bytes) -> Any:
    """Return the message; UserError if it is not one, or has what no detector has."""
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # of protobuf, whose error class depends on its build
        raise UserError("damaged, or no ONNX file") from error
    model.DiscardUnknownFields()  # a runtime may know what this ONNX does not, and nothing checks
    graph = model.graph
    initial = {tensor.name for tensor in graph.initializer}
    if len(initial) != len(graph.initializer):
        raise UserError("two of its initializers have one name")
    # Up to version 3 of the format, initializers are inputs too.
    inputs = [given for given in graph.input if given.name not in initial]
    del graph.input[:]
    graph.input.extend(inputs)
    if not graph.node:
        raise UserError("damaged, or no ONNX file: it has no graph")
    if model.functions or graph.sparse_initializer or model.training_info:
        raise UserError("it has functions, sparse tensors or training; a detector has none of them")
    if len(inputs) != 1:
        raise UserError(f"it takes {len(inputs)} inputs; a detector has one, the images")
    return model


def _example(metadata: Metadata) -> tuple[int, ...]:
    """Return the shape of images to check a file for; of a dynamic one it is small."""
    batch, (height, width) = metadata.batch_size, metadata.image_size
    if metadata.image == PIXELS:
        return height, width, 3
    if metadata.dynamic:
        most = -(-EXAMPLE // metadata.stride) * metadata.stride
        batch, height, width = 1, min(height, most), min(width, most)
    return batch, 3, height, width


def _last_operator(graph: Any) -> str:
    """Return the operator that makes the first output; "" if no node does."""
    made = {name: node.op_type for node in graph.node for name in node.output}
    return made.get(graph.output[0].name, "") if graph.output else ""


def _texts_of(model: Any) -> dict[str, str]:
    if len(model.metadata_props) > MOST_TEXTS:
        raise UserError(f"its metadata has {len(model.metadata_props):,} texts")
    texts: dict[str, str] = {}
    for entry in model.metadata_props:
        # Some builds of protobuf leave what is no text as bytes.
        if not isinstance(entry.key, str) or not isinstance(entry.value, str):
            raise UserError(f"its metadata has {brief(entry.key)} that is not UTF-8")
        if entry.key in texts:
            raise UserError(f"its metadata has {brief(entry.key)} twice")
        texts[entry.key] = entry.value
    return texts


def _free_shape(value: Any) -> list[int | None]:
    """Return the shape that a graph gives for an input or output; None for a free size."""
    sizes = value.type.tensor_type.shape.dim
    return [size.dim_value if size.HasField("dim_value") else None for size in sizes]
