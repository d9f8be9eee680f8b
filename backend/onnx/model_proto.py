"""Build an ONNX model from recorded tensors, and compute their values with ONNX Runtime."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented

from duet.backend.onnx.device import host_threads
from duet.backend.onnx.recording import TYPES, Size, Tensor, constant
from duet.backend.select import BackendError

OPSET = 17
SHAPE_OF_PART = 15  # first opset whose Shape can return a range of dimensions
ROI_MAY_LACK = 13  # first opset whose Resize may lack its second input
MOST_BYTES = 2**31 - 2**24  # size limit for constants: protobuf messages end at 2 GiB
FATAL = 4  # ONNX Runtime's log level: its errors are raised too


def values(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Compute and cache the values of tensors; ValueError if one depends on a graph input.

    Tensors that a module returned together with one of them are computed too; otherwise reading
    each further map would run the whole network again.
    """
    wanted = {id(tensor): tensor for tensor in tensors}
    for tensor in _in_order(tensors):
        if tensor.node is not None and not tensor.node.operation:
            raise ValueError(f"{tensor.name!r} is a graph input and has no values yet")
        alive = [other for ref in tensor.returned_with if (other := ref()) is not None]
        wanted |= {id(other): other for other in alive}
    unknown = [tensor for tensor in wanted.values() if tensor.array is None]
    if unknown:
        for tensor, array in zip(unknown, _run(build_model(unknown, [])), strict=True):
            tensor.array = array
    return [np.array(tensor.array) for tensor in tensors]


def _run(model: onnx.ModelProto) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = FATAL
    options.intra_op_num_threads = host_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # it runs once
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    except NotImplemented:  # no float64 Conv, for example
        return list(ReferenceEvaluator(model).run(None, {}))
    return list(session.run(None, {}))


def fold_constants(outputs: Sequence[Tensor]) -> None:
    """Compute what outputs depend on and depends on no graph input, before a graph is built."""
    fixed: set[int] = set()
    wanted: dict[int, Tensor] = {}  # final results of computations without a graph input
    for tensor in _in_order(outputs):
        inputs = inputs_of(tensor)
        if tensor.array is not None or not tensor.name and fixed.issuperset(map(id, inputs)):
            fixed.add(id(tensor))
        else:
            wanted |= {id(x): x for x in inputs if x.array is None and id(x) in fixed}
    values(list(wanted.values()))


def build_model(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], opset: int = OPSET
) -> onnx.ModelProto:
    graph = _Graph(inputs, opset)
    for tensor in _in_order(outputs):
        graph.add(tensor)
    written, version = graph.written(outputs, inputs), [helper.make_opsetid("", opset)]
    # The oldest one with the opset: runtimes reject newer ones than theirs.
    ir_version = min(row[1] for row in helper.VERSION_TABLE if row[2] >= opset)
    return helper.make_model(written, opset_imports=version, ir_version=ir_version)


class _Graph:
    """Nodes and constants of a graph, in the order tensors are added."""

    def __init__(self, inputs: Sequence[Tensor], opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._names = {id(tensor): tensor.name for tensor in inputs}
        self._stored: dict[tuple[object, ...], str] = {}  # unnamed constants by content
        self._numbers: Counter[str] = Counter()
        self._num_bytes = 0

    def add(self, tensor: Tensor) -> None:
        """Add a tensor whose inputs were added before."""
        if id(tensor) in self._names:
            return
        if tensor.array is not None:
            self._names[id(tensor)] = tensor.name or self._stored_once(tensor)
            if tensor.name:
                self._store(tensor.array, tensor.name)
        else:
            self._add_node(tensor)

    def written(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> onnx.GraphProto:
        given, returned = ([self._declared(x) for x in some] for some in (inputs, outputs))
        return helper.make_graph(self.nodes, "model", given, returned, self.initializers)

    def _declared(self, tensor: Tensor) -> onnx.ValueInfoProto:
        name = self._names[id(tensor)]
        sizes = [
            (size.name or f"{name}_{dim}") if isinstance(size, Size) else size
            for dim, size in enumerate(tensor.shape)
        ]
        return helper.make_tensor_value_info(name, TYPES[tensor.dtype], sizes)

    def _add_node(self, tensor: Tensor) -> None:
        node, operation = tensor.node, operation_of(tensor)
        assert node is not None
        for result in node.results or (tensor,):
            self._names[id(result)] = result.name or self._numbered(operation.lower())
        used = ["" if x is None else self._names[id(x)] for x in node.inputs]
        if operation == "Resize" and self.opset < ROI_MAY_LACK:
            used[1] = self._stored_once(constant(np.zeros(0, np.float32)))
        made = [self._names[id(result)] for result in node.results or (tensor,)]
        if operation == "Shape" and self.opset < SHAPE_OF_PART:
            self._write_old_shape(used[0], made[0], node.attributes["start"])
        else:
            self._write(operation, used, made, **node.attributes)

    def _write(
        self, operation: str, used: Sequence[str], made: Sequence[str], **attributes: Any
    ) -> None:
        self.nodes.append(helper.make_node(operation, used, made, made[0], **attributes))

    def _write_old_shape(self, used: str, made: str, dim: int) -> None:
        """Write the size of one dimension in an opset whose Shape returns all of them."""
        place = self._stored_once(constant(np.array([dim], np.int64)))
        self._write("Shape", [used], [f"{made}_of_all"])
        self._write("Gather", [f"{made}_of_all", place], [made], axis=0)

    def _stored_once(self, tensor: Tensor) -> str:
        """Store a constant once per value; return its name, derived from its parameter if any."""
        assert tensor.array is not None
        key = tensor.dtype, tensor.array.shape, tensor.array.tobytes()
        if key not in self._stored:
            self._stored[key] = self._numbered(_parameter_of(tensor) or "constant")
            self._store(tensor.array, self._stored[key])
        return self._stored[key]

    def _store(self, array: np.ndarray, name: str) -> None:
        self._num_bytes += array.nbytes
        if self._num_bytes > MOST_BYTES:
            raise BackendError(
                f"a graph can hold at most {MOST_BYTES:,} bytes of weights and images; use a "
                "smaller batch, or --backend torch or oneflow"
            )
        self.initializers.append(numpy_helper.from_array(array, name))

    def _numbered(self, word: str) -> str:
        self._numbers[word] += 1
        return f"{word}_{self._numbers[word] - 1}"


def operation_of(tensor: Tensor) -> str:
    assert tensor.node is not None and tensor.node.operation, "it needs an input of the graph"
    return tensor.node.operation


def inputs_of(tensor: Tensor) -> list[Tensor]:
    return [] if tensor.node is None else [x for x in tensor.node.inputs if x is not None]


def _parameter_of(tensor: Tensor) -> str:
    """Return the name of the parameter that a constant derives from; "" if none."""
    while not tensor.name and (inputs := inputs_of(tensor)):
        tensor = inputs[0]
    return tensor.name


def _in_order(outputs: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the tensors that outputs depend on, each once, in topological order."""
    seen: set[int] = set()
    waiting: list[tuple[Tensor, bool]] = [(tensor, False) for tensor in reversed(outputs)]
    while waiting:
        tensor, is_ready = waiting.pop()
        if is_ready:
            yield tensor
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            waiting.append((tensor, True))
            if tensor.array is None:
                waiting += [(x, False) for x in reversed(inputs_of(tensor))]
