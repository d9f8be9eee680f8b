"""Recorded tensors -> an ONNX model, and through ONNX Runtime their values.

Before: `recording.py`. After: a file, or arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from backend import checks
from backend.onnx.recording import Size, Tensor

OPSET = 17
TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}
FLOAT_DTYPES = ("float16", *checks.FLOAT_DTYPES)  # float16: of files that are to compute in it


def values(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Compute tensors that depend on no input of the graph; they keep the result."""
    wanted = [tensor for tensor in tensors if tensor.array is None]
    if wanted:
        content = build_model(wanted, []).SerializeToString()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        for tensor, array in zip(wanted, session.run(None, {}), strict=True):
            tensor.array = array
    return [np.array(tensor.array) for tensor in tensors]


def build_model(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], opset: int = OPSET
) -> onnx.ModelProto:
    """Return the model that computes tensors from inputs of the graph, of a version of ONNX."""
    names: dict[int, str] = {id(tensor): tensor.name for tensor in inputs}
    nodes: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []
    for tensor in _in_order(outputs):
        if id(tensor) in names:
            continue
        if tensor.array is not None:
            names[id(tensor)] = tensor.name or f"constant_{len(initializers)}"
            initializers.append(numpy_helper.from_array(tensor.array, names[id(tensor)]))
            continue
        assert tensor.node is not None and tensor.node.operation, "it needs an input of the graph"
        stem = f"{tensor.node.operation.lower()}_{len(nodes)}"
        made = tensor.node.results or (tensor,)
        for place, each in enumerate(made):
            names[id(each)] = each.name or (f"{stem}_{place}" if place else stem)
        used = [names[id(x)] if x is not None else "" for x in tensor.node.inputs]
        made_names = [names[id(each)] for each in made]
        nodes.append(
            helper.make_node(
                tensor.node.operation, used, made_names, name=made_names[0],
                **tensor.node.attributes,
            )
        )  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "model",
        [_declared(tensor, names) for tensor in inputs],
        [_declared(tensor, names) for tensor in outputs],
        initializers,
    )
    foreign = sorted({node.domain for node in nodes} - {""})
    versions = [helper.make_opsetid("", opset), *(helper.make_opsetid(x, 1) for x in foreign)]
    return helper.make_model(graph, opset_imports=versions, ir_version=ir_version(opset))


def ir_version(opset: int) -> int:
    """Return the oldest version of the file format that has an opset: runtimes refuse newer ones
    than their own.
    """
    return min(row[1] for row in helper.VERSION_TABLE if row[2] >= opset)


def _declared(tensor: Tensor, names: Mapping[int, str]) -> onnx.ValueInfoProto:
    name = names[id(tensor)]
    sizes = [
        f"{name}_{dim}" if isinstance(size, Size) else size for dim, size in enumerate(tensor.shape)
    ]
    return helper.make_tensor_value_info(name, TYPES[tensor.dtype], sizes)


def _in_order(outputs: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the tensors on which outputs depend, each once, after those it is made of."""
    seen: set[int] = set()
    waiting: list[tuple[Tensor, bool]] = [(tensor, False) for tensor in reversed(outputs)]
    while waiting:
        tensor, is_ready = waiting.pop()
        if is_ready:
            yield tensor
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            waiting.append((tensor, True))
            if tensor.array is None and tensor.node is not None:
                inputs = [x for x in tensor.node.inputs if x is not None]
                waiting += [(x, False) for x in reversed(inputs)]
