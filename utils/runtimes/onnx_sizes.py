"""The sizes of all outputs in an ONNX graph, computed before anything runs.

ONNX Runtime runs nodes that need no image when it loads a file, and allocates whatever a node asks
for: a file of a hundred bytes can ask for terabytes. Here the shapes of all outputs are inferred,
node by node, for images of one shape. What shapes are computed from, a few numbers, is computed.

Before: `onnx_tensors.py`. After: `onnx_runtime.py` makes a session.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from utils.errors import UserError, brief
from utils.optional import import_optional
from utils.runtimes.onnx_divisors import check_counts, check_divisor
from utils.runtimes.onnx_operators import ACCEPTED, CHOICES, DOMAINS, MATHS, SHAPES, TENSORRT
from utils.runtimes.onnx_tensors import BYTES
from utils.runtimes.onnx_work import DEPENDENT, Shape, shape_of, work_of

MAX_NODES = 20_000  # a yolov5x has 464
MAX_NAMES = 50_000  # inputs and outputs of all nodes; a yolov5x6 has about 3,500
SMALL = 4096  # numbers of a tensor whose values are known
# Nodes that are computed here, of operators that NumPy computes at once; a letterbox has 70.
MOST_COMPUTED = 1000
SIZES_ALONE = ("Shape", "Size")  # tell the shape of what they are given
COMPUTED = frozenset((*MATHS, *SHAPES, *CHOICES)) - {"Resize", "Upsample", "NonMaxSuppression"}
# Bytes of all outputs together for each number of the images: 193 of yolov5n, 1,280 of yolov5x, and
# twice as many in INT8. Fewer images than ROOM numbers may make as much as if they had these.
MOST_BYTES = 4096
ROOM = 1 << 14
# Of all outputs together, whatever the images are said to be; yolov5x, 64 images of 640 px: 94 GiB.
CEILING = 1 << 38
# Bytes of what no image decides, which a runtime computes while it loads a file: grids, and weights
# in another precision. For each number in the file 8 more.
MOST_CONSTANT = 1 << 28
# Work of all nodes, in multiplications, for each number of the images and of the file, or FEW where
# these are fewer. A convolution has one for each weight and cell; together they are 0.001 of the
# YOLOv5s.
MOST_WORK = 0.1
FEW = 1 << 16


class GraphSizes:
    """The nodes of a checked model; `check` follows images of a shape through them."""

    def __init__(self, model: Any) -> None:
        """Keep the nodes; raise UserError for one that is not accepted."""
        self._onnx = import_optional("onnx", "an ONNX file")
        self._reference = import_optional("onnx.reference", "an ONNX file")
        self._inference = import_optional("onnx.shape_inference", "an ONNX file")
        self._kinds = {number: x for x, number in self._onnx.TensorProto.DataType.items()}
        # Each node is told all of them, and other domains have no nodes here.
        self._opsets = [opset for opset in model.opset_import if opset.domain in DOMAINS]
        self._version = _version_of(model)
        self._ir_version = model.ir_version
        if len(model.graph.node) > MAX_NODES:
            raise UserError(f"it has over {MAX_NODES:,} nodes, more than any detector")
        if sum(len(node.input) + len(node.output) for node in model.graph.node) > MAX_NAMES:
            raise UserError(f"its nodes have over {MAX_NAMES:,} inputs and outputs")
        self._nodes = list(map(copy.deepcopy, model.graph.node))  # the rest of the file may go
        for node in self._nodes:
            self._check_node(node)
        self._input = copy.deepcopy(model.graph.input[0])
        self._lock = threading.Lock()
        self._checked: set[Shape] = set()  # of images
        self._numbers = 0  # of the file
        self._types: dict[str, Any] = {}
        self._values: dict[str, np.ndarray] = {}
        for tensor in model.graph.initializer:
            self._keep_initializer(tensor)

    def _check_node(self, node: Any) -> None:
        if node.domain not in DOMAINS or node.op_type not in ACCEPTED:
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            if node.op_type == TENSORRT:
                raise UserError(f"its operator {TENSORRT} runs only in TensorRT")
            raise UserError(
                f"its operator {brief(name)} is not supported; a detector has those of "
                "utils/runtimes/onnx_operators.py"
            )
        check_counts(node)

    def _keep_initializer(self, tensor: Any) -> None:
        numbers = math.prod(tensor.dims)
        self._numbers += numbers
        self._types[tensor.name] = self._type_of(tensor.data_type, tuple(tensor.dims))
        if numbers <= SMALL:
            self._values[tensor.name] = self._onnx.numpy_helper.to_array(tensor)

    def _type_of(self, kind: int, shape: Shape) -> Any:
        return self._onnx.helper.make_tensor_type_proto(kind, shape)

    def _bytes_of(self, kind: Any) -> int:
        """Return the bytes of an output; UserError for a type that detectors do not have."""
        name = self._kinds.get(kind.tensor_type.elem_type, "")
        if name not in BYTES:
            raise UserError(
                f"one of its nodes makes numbers of type {name}, which is not supported"
            )
        return math.prod(shape_of(kind) or ()) * BYTES[name]

    def check(self, shape: Sequence[int]) -> None:
        """Follow images of a shape, once for each; UserError names the node that makes too much."""
        with self._lock:
            if tuple(shape) not in self._checked:
                self._follow(shape)
                self._checked.add(tuple(shape))

    def _follow(self, shape: Sequence[int]) -> None:
        types, values, constants = dict(self._types), dict(self._values), dict(self._values)
        kind = self._input.type.tensor_type.elem_type
        types[self._input.name] = self._type_of(kind, tuple(shape))
        room = max(math.prod(shape), ROOM)
        left, work = min(MOST_BYTES * room, CEILING), MOST_WORK * room * max(self._numbers, FEW)
        constant = MOST_CONSTANT + 8 * self._numbers
        computed = 0
        bounds: set[str] = set()  # what may also be smaller than its type says
        depends = {self._input.name}  # on an image, and not on its size alone
        for node in self._nodes:
            found = self._outputs(node, types, values)
            for name in found:
                if name in types:
                    raise UserError(f"two nodes of it make {brief(name)}")
            types.update(found)
            size = sum(map(self._bytes_of, found.values()))
            left -= size
            if node.op_type in SIZES_ALONE or depends.isdisjoint(node.input):
                constant -= size
            else:
                depends.update(found)
            check_divisor(node, types, constants)
            work -= work_of(node, types, values)
            if min(left, constant, work) < 0:
                raise UserError(
                    f"its node {node.op_type} {brief(node.name)} takes more memory or time than "
                    f"any detector for images of {brief(tuple(shape))}"
                )
            if node.op_type in DEPENDENT or not bounds.isdisjoint(node.input):
                bounds.update(node.output)
            elif computed < MOST_COMPUTED and node.op_type in COMPUTED:
                known = self._known(node, types, values)
                values.update(known)
                constants.update(known if node.op_type == "Constant" else {})
                computed += len(known)

    def _outputs(
        self, node: Any, types: Mapping[str, Any], values: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Return the type of each output, with a known shape."""
        names = {name for name in node.input if name}  # each is converted once
        data = {x: self._onnx.numpy_helper.from_array(values[x]) for x in names if x in values}
        try:
            found: dict[str, Any] = self._inference.infer_node_outputs(
                self._onnx.defs.get_schema(node.op_type, self._version, ""),
                node,
                {name: types[name] for name in names},
                data,
                opset_imports=self._opsets,
                ir_version=self._ir_version,
            )
            if node.op_type in DEPENDENT:
                shape = DEPENDENT[node.op_type](node, types, values)
                found = {node.output[0]: self._type_of(self._onnx.TensorProto.INT64, shape)}
        except Exception as error:  # of classes that onnx does not export
            why = str(error).partition("\n")[0]
            raise UserError(f"its node {node.op_type} {brief(node.name)}: {brief(why)}") from error
        for name in filter(None, node.output):
            if name not in found or shape_of(found[name]) is None:
                raise UserError(
                    f"the size that its node {node.op_type} {brief(node.name)} gives {brief(name)} "
                    "is not known before it runs"
                )
        return {name: found[name] for name in node.output if name}

    def _known(
        self, node: Any, types: Mapping[str, Any], values: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Return the outputs of a node that are few numbers and depend on no image."""
        inputs, outputs = [x for x in node.input if x], [x for x in node.output if x]
        if node.op_type in SIZES_ALONE:  # what has the shape, and no memory
            sizes = shape_of(types[inputs[0]]) or ()
            if any(size > CEILING for size in sizes):  # beside a size of 0
                return {}
            given = {inputs[0]: np.broadcast_to(np.False_, sizes)}
        elif all(name in values for name in inputs):
            given = {name: values[name] for name in inputs}
        else:
            return {}
        if any(math.prod(shape_of(types[name]) or ()) > SMALL for name in outputs):
            return {}
        function = self._onnx.helper.make_function(
            "known", "node", inputs, outputs, [node], self._opsets
        )
        try:
            with np.errstate(all="ignore"):
                run = self._reference.ReferenceEvaluator(function).run
                found = run(None, given, attributes={})
        except Exception:  # what it cannot compute is not known
            return {}
        return {name: np.asarray(value) for name, value in zip(outputs, found, strict=True)}


def _version_of(model: Any) -> int:
    """Return the version of ONNX's own operators; UserError if a model has none."""
    versions = [opset.version for opset in model.opset_import if opset.domain in DOMAINS]
    if len(versions) != 1:
        raise UserError("it does not say of which version of ONNX its operators are")
    return int(versions[0])
