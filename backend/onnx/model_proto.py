"""Recorded tensors -> an ONNX model, and through ONNX Runtime their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
SHAPE_OF_PART = 15  # the first opset whose Shape can give some of the sides
MOST_BYTES = 2**31 - 2**24  # of constants: a message of protobuf ends at 2 GiB
FATAL = 4  # of the messages that ONNX Runtime may write: an error is raised as well


def values(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Compute tensors that depend on no input of the graph; they keep the result.

    Tensors that a module returned together with one of them are computed too: otherwise each
    further map that is asked for would run the whole network again.

    Raises:
        ValueError: one depends on an input of the graph.
    """
    wanted = {id(tensor): tensor for tensor in tensors}
    for tensor in _in_order(tensors):
        if tensor.node is not None and not tensor.node.operation:
            raise ValueError(f"{tensor.name!r} is an input of the graph: it has no values here")
        alive = [other for ref in tensor.returned_with if (other := ref()) is not None]
        wanted |= {id(other): other for other in alive}
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
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # it runs once
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    except NotImplemented:  # it has no Conv of float64
        return list(ReferenceEvaluator(model).run(None, {}))
    return list(session.run(None, {}))


def name_part(outputs: Sequence[Tensor], part: str) -> None:
    """Name what computes some tensors, if it has no name yet, after a part of the model.

    The third convolution of "layer_3" is "layer_3_conv_2", and its output "layer_3"; of several
    outputs the first is "layer_3_0". What depends on no input of the graph is computed now.
    """
    for index, output in enumerate(outputs):
        output.name = output.name or (f"{part}_{index}" if len(outputs) > 1 else part)
    _fold_constants(outputs)
    numbers: Counter[str] = Counter()
    for tensor in _part_of(outputs):
        if not tensor.name and tensor.array is None:
            operation = operation_of(tensor).lower()
            tensor.name = f"{part}_{operation}_{numbers[operation]}"
            numbers[operation] += 1


def _fold_constants(outputs: Sequence[Tensor]) -> None:
    fixed: set[int] = set()
    wanted: dict[int, Tensor] = {}  # the last ones of computations without an input of the graph
    for tensor in _part_of(outputs):
        inputs = inputs_of(tensor)
        if tensor.array is not None or not tensor.name and fixed.issuperset(map(id, inputs)):
            fixed.add(id(tensor))
        else:
            wanted |= {id(x): x for x in inputs if x.array is None and id(x) in fixed}
    values(list(wanted.values()))


def _part_of(outputs: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield what computes outputs, up to what has a name, in order."""
    own = {id(output) for output in outputs}
    return _in_order(outputs, lambda tensor: bool(tensor.name) and id(tensor) not in own)


def build_model(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], opset: int = OPSET
) -> onnx.ModelProto:
    """Return the model that computes tensors from inputs of the graph, of a version of ONNX."""
    graph = _Graph(inputs, opset)
    for tensor in _in_order(outputs):
        graph.add(tensor)
    written, version = graph.written(outputs, inputs), [helper.make_opsetid("", opset)]
    return helper.make_model(written, opset_imports=version, ir_version=ir_version(opset))


class _Graph:
    """Nodes and constants of a graph, in the order in which tensors are added."""

    def __init__(self, inputs: Sequence[Tensor], opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._names = {id(tensor): tensor.name for tensor in inputs}
        self._stored: dict[tuple[object, ...], str] = {}  # constants without a name, by content
        self._numbers: Counter[str] = Counter()
        self._num_bytes = 0

    def add(self, tensor: Tensor) -> None:
        """Add a tensor after those that it is made of."""
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
        """Write one side of a tensor in an opset whose Shape gives all sides."""
        place = self._stored_once(constant(np.array([dim], np.int64)))
        self._write("Shape", [used], [f"{made}_of_all"])
        self._write("Gather", [f"{made}_of_all", place], [made], axis=0)

    def _stored_once(self, tensor: Tensor) -> str:
        """Return the name of the constant with the value of a tensor, after its parameter if it has
        one."""
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
                f"a graph holds {MOST_BYTES:,} bytes of weights and images; use a smaller batch, "
                "or --backend torch or oneflow"
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
    """Return the name of the parameter of which a constant was made; "" if of none."""
    while not tensor.name and (inputs := inputs_of(tensor)):
        tensor = inputs[0]
    return tensor.name


def ir_version(opset: int) -> int:
    """Return the oldest version of the file format that has an opset: runtimes refuse newer ones
    than their own.
    """
    return min(row[1] for row in helper.VERSION_TABLE if row[2] >= opset)


def _in_order(
    outputs: Sequence[Tensor], is_end: Callable[[Tensor], bool] = lambda tensor: False
) -> Iterator[Tensor]:
    """Yield the tensors on which outputs depend, each once, after those it is made of.

    is_end: tells tensors beyond which nothing is yielded.
    """
    seen: set[int] = set()
    waiting: list[tuple[Tensor, bool]] = [(tensor, False) for tensor in reversed(outputs)]
    while waiting:
        tensor, is_ready = waiting.pop()
        if is_ready:
            yield tensor
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            waiting.append((tensor, True))
            if tensor.array is None and not is_end(tensor):
                waiting += [(x, False) for x in reversed(inputs_of(tensor))]
