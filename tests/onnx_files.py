"""Small ONNX files, written node by node: detectors, and files that are none; running graphs."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from duet.backend.onnx.model_proto import build_model
from duet.backend.onnx.recording import Tensor, graph_input
from duet.utils.export.metadata import Metadata

SIDE = 32
CLASSES = ("cat", "dog")
FOREIGN = {"names": "{0: 'cat', 1: 'dog'}", "stride": "32"}
NODE = helper.make_node
# One row an image, whatever it shows: cx, cy, w, h, objectness, two classes; objectness is the mean
# of the image, so that images can be told apart.
ROW = np.float32([[[16, 12, 8, 4, 0, 0.25, 0.75]]])
MEAN = np.float32([[[0, 0, 0, 0, 1, 0, 0]]])

PLACES = SIDE // 4
# One box with three prototypes: cx, cy, w, h, objectness, two classes, coefficients.
MASK_ROW = np.float32([[[16, 16, 16, 16, 0.9, 0.1, 0.8, 50, 0, 0]]])


def own_texts(**changes: Any) -> dict[str, str]:
    """Return the metadata of export.py, with changes, as JSON texts; None leaves one out."""
    values = {
        "class_names": list(CLASSES), "stride": 32, "image_size": [SIDE, SIDE], "batch_size": 1,
        "dynamic": False, "image": "floats", "output": "rows", "precision": "float32",
        "head": "Detect", "suppression": {}, "trained_size": SIDE, "producer": "Duet",
    }  # fmt: skip
    return {name: json.dumps(x) for name, x in {**values, **changes}.items() if x is not None}


def constant(name: str, value: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


def make_file(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    initial: Sequence[TensorProto] = (),
    shape: Sequence[int | str] = (1, 3, SIDE, SIDE),
    outputs: Sequence[Sequence[int | str]] = ((1, 1, 7),),
    texts: Mapping[str, str] | None = None,
    kind: int = TensorProto.FLOAT,
    domains: Sequence[str] = (),
) -> Path:
    """Write a model whose outputs are called out0, out1, ... and whose input is called images."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("images", kind, shape)],
        [
            helper.make_tensor_value_info(f"out{index}", kind, sizes)
            for index, sizes in enumerate(outputs)
        ],
        initial,
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(name, 1) for name in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    helper.set_model_props(model, dict(own_texts() if texts is None else texts))
    path.write_bytes(model.SerializeToString())
    return path


def detector_nodes(dtype: type = np.float32) -> tuple[list[onnx.NodeProto], list[TensorProto]]:
    """Return the graph that finds `ROW` in each image, with the image's mean as objectness."""
    nodes = [
        NODE("ReduceMean", ["images"], ["mean4"], axes=[1, 2, 3]),
        NODE("Squeeze", ["mean4", "last"], ["mean"]),
        NODE("Mul", ["mean", "place"], ["objectness"]),
        NODE("Add", ["objectness", "row"], ["out0"]),
    ]
    initial = [
        constant("last", np.int64([3])),
        constant("place", MEAN.astype(dtype)),
        constant("row", ROW.astype(dtype)),
    ]
    return nodes, initial


def write_detector(path: Path, batch: int | str = 1, **given: Any) -> Path:
    """Write that detector for a batch of images; more as `make_file`."""
    nodes, initial = detector_nodes(given.pop("dtype", np.float32))
    sizes = {"shape": (batch, 3, SIDE, SIDE), "outputs": ((batch, 1, 7),)}
    return make_file(path, nodes, initial, **{**sizes, **given})


def bare_rows(*before: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return nodes that add up `big`, which nodes before make, and return it as a row."""
    return [
        *before,
        NODE("ReduceSum", ["big"], ["sum"], keepdims=0),
        NODE("Add", ["sum", "row"], ["out0"]),
    ]


def write_segmenter(
    path: Path,
    texts: Mapping[str, str] = FOREIGN,
    prototypes: int = 3,
    outputs: Sequence[Sequence[int | str]] = (),
) -> Path:
    """Rows that never change; of the prototypes the first is 1 in the upper half, else -1."""
    maps = np.zeros((1, prototypes, PLACES, PLACES), np.float32)
    maps[0, 0] = np.where(np.arange(PLACES)[:, None] < PLACES // 2, 1, -1)
    nodes = [
        NODE("ReduceMean", ["images"], ["mean"], keepdims=0),
        NODE("Mul", ["mean", "nothing"], ["zero"]),
        NODE("Add", ["rows", "zero"], ["out0"]),
        NODE("Add", ["maps", "zero"], ["out1"]),
    ]
    initial = [
        constant("nothing", np.float32(0)),
        constant("rows", MASK_ROW),
        constant("maps", maps),
    ]
    outputs = outputs or (MASK_ROW.shape, maps.shape)
    return make_file(path, nodes, initial, (1, 3, SIDE, SIDE), outputs, texts)


def write_classifier(
    path: Path,
    texts: Mapping[str, str] = FOREIGN,
    last: str = "Identity",
    shape: Sequence[int | str] = (1, 3, SIDE, SIDE),
) -> Path:
    """Logits of two classes: the means of red and of green."""
    nodes = [
        NODE("ReduceMean", ["images"], ["means"], axes=[2, 3], keepdims=0),
        NODE("Slice", ["means", "from", "to", "along"], ["two"]),
        NODE(last, ["two"], ["out0"]),
    ]
    initial = [constant(name, np.int64([at])) for name, at in (("from", 0), ("to", 2))]
    initial.append(constant("along", np.int64([1])))
    return make_file(path, nodes, initial, shape, ((shape[0], 2),), texts)


# The smallest network of an exported file: it doubles its images and calls them rows.
ODD_NAME = "é<&\"'\n三"
METADATA = Metadata(class_names=(ODD_NAME,), stride=32, image_size=(SIDE, SIDE))


def write_doubling(path: Path, factor: float = 2, dynamic: bool = False) -> Path:
    """Write an ONNX graph that maps (B, 3, H, W) to (B, H * W / 2, 6), times a factor."""
    sizes = ["b", 3, "h", "w"] if dynamic else [1, 3, SIDE, SIDE]
    factors = np.full((1, 3, 1, 1) if dynamic else (1, 3, SIDE, SIDE), factor, np.float32)
    graph = helper.make_graph(
        [
            NODE("Mul", ["images", "factors"], ["product"]),
            NODE("Reshape", ["product", "shape"], ["output0"]),
        ],
        "doubling",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [sizes[0], None, 6])],
        [constant("factors", factors), constant("shape", [0, -1, 6])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def random_images(batch: int = 1, height: int = SIDE, width: int = SIDE) -> np.ndarray:
    shape = batch, 3, height, width
    return np.random.default_rng(0).random(shape, np.float32)


def rows_of(images: np.ndarray, factor: float = 2) -> np.ndarray:
    """What the network returns."""
    return (images * np.float32(factor)).reshape(len(images), -1, 6)


# Parts of an exported graph, run alone by ONNX Runtime.


def small_graph(
    part: Callable[[Tensor], Sequence[Tensor]],
    shape: Sequence[int],
    dtype: str = "float32",
    free: Sequence[int] = (),
    opset: int = 17,
) -> Any:
    """Return the checked ModelProto of what a function makes of one input, called `given`."""
    given = graph_input("given", shape, dtype, {side: f"side{side}" for side in free})
    outputs = part(given)
    for index, output in enumerate(outputs):
        output.name = f"output{index}"
    model = build_model(outputs, [given], opset)
    onnx.checker.check_model(model, full_check=True)
    return model


def run_graph(model: Any) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Load a graph with one input; return what runs it."""
    content = model if isinstance(model, bytes) else model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    return lambda array: session.run(None, {given.name: array})


def shapes(model: Any) -> Mapping[str, tuple[int | str, ...]]:
    """Return the shapes of the outputs, which a name stands in for where they are free."""
    return {
        output.name: tuple(
            side.dim_param or side.dim_value for side in output.type.tensor_type.shape.dim
        )
        for output in model.graph.output
    }
