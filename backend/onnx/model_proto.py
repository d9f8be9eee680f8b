"""Recorded tensors -> an ONNX model, and through ONNX Runtime their values.

Before: `recording.py`. After: a file, or arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented

from backend.onnx.device import host_threads
from backend.onnx.recording import TYPES, Size, Tensor

OPSET = 17
FATAL = 4  # of the messages that ONNX Runtime may write: an error is raised as well


def values(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Compute tensors that depend on no input of the graph; they keep the result.

    So do those that a module returned together with one of them: else the first map that is asked
    for, and then each other one, would take the whole network again.
    """
    wanted = {id(tensor): tensor for tensor in tensors}
    for tensor in _in_order(tensors):
        wanted |= {id(other): other for other in tensor.returned_with}
    unknown = [tensor for tensor in wanted.values() if tensor.array is None]
    if unknown:
        for tensor, array in zip(unknown, _run(build_model(unknown, [])), strict=True):
            tensor.array = array
    return [np.array(tensor.array) for tensor in tensors]


def _run(model: onnx.ModelProto) -> list[np.ndarray]:
    """Return the outputs of a model without inputs."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = FATAL
    options.intra_op_num_threads = host_threads()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    except NotImplemented:  # it has no Conv of float64
        return list(ReferenceEvaluator(model).run(None, {}))
    return list(session.run(None, {}))


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
        name = names[id(tensor)] = tensor.name or f"{tensor.node.operation.lower()}_{len(nodes)}"
        used = [names[id(x)] if x is not None else "" for x in tensor.node.inputs]
        nodes.append(
            helper.make_node(
                tensor.node.operation, used, [name], name=name, **tensor.node.attributes
            )
        )
    graph = helper.make_graph(
        nodes,
        "model",
        [_declared(tensor, names) for tensor in inputs],
        [_declared(tensor, names) for tensor in outputs],
        initializers,
    )
    versions = [helper.make_opsetid("", opset)]
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
