"""Quantize an ONNX graph to 8 bits: weights per channel, maps by calibration images."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duet.utils.errors import UserError
from duet.utils.files.atomic import atomic_text_file
from duet.utils.optional import import_optional
from duet.utils.text import count, say

CONVOLUTION = "Conv"
MOST_VALUES = 2**13  # sampled evenly per map and call: of 64 images, enough for the tails
OUTSIDE = 3e-6  # fraction of values clipped at either end; measured
LEAST_SPAN = 1e-6  # for a constant map

Calibration = Callable[[], Iterator[np.ndarray]]  # images, as a graph takes them
Ranges = Mapping[str, tuple[np.float32, np.float32]]


class Layout(NamedTuple):
    """The maps to quantize: those that make a runtime faster."""

    operators: tuple[str, ...]  # computed in 8 bits
    not_after: tuple[str, ...] = ()  # operators whose results stay in float32


# ONNX Runtime has 8-bit kernels for these, and converts around any float32 one between them.
ONNX_RUNTIME = Layout((CONVOLUTION, "Sigmoid", "Mul", "Add", "Concat", "MaxPool", "Resize"))
# OpenVINO computes the activation inside the convolution, in float32, and rounds after it.
OPENVINO = Layout((CONVOLUTION,), not_after=(CONVOLUTION,))


def quantize(graph: Path, images: Calibration, layout: Layout = ONNX_RUNTIME) -> Any:
    """Return an int8 graph, an onnx.ModelProto with QuantizeLinear and DequantizeLinear.

    Weights are int8 with a scale per channel, maps uint8 with one range each. The first
    convolution, the head's last ones and the decoding stay in float32.
    """
    onnx = import_optional("onnx", "--int8")
    tools = import_optional("onnxruntime.quantization", "--int8")
    model = onnx.load_model(graph)
    nodes = [node for node in inner_nodes(model.graph) if node.op_type in layout.operators]
    if not any(node.op_type == CONVOLUTION for node in nodes):
        raise UserError(
            "--int8: the model has no convolution between its first and its last ones, which stay "
            "in float32, so nothing would be in 8 bits; export it without --int8"
        )
    ranges = find_ranges(model, maps_of(model.graph, nodes), images)
    names = [node.name for node in nodes]
    quantizer = tools.QDQQuantizer(
        model,
        per_channel=True,
        reduce_range=False,
        weight_qType=tools.QuantType.QInt8,
        activation_qType=tools.QuantType.QUInt8,
        tensors_range=tools.calibrate.TensorsData(tools.CalibrationMethod.MinMax, ranges),
        nodes_to_quantize=names,
        nodes_to_exclude=[node.name for node in model.graph.node if node.name not in set(names)],
        op_types_to_quantize=layout.operators,
        extra_options={"OpTypesToExcludeOutputQuantization": layout.not_after},
    )
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    return quantizer.model.model


def inner_nodes(graph: Any) -> list[Any]:
    """Return the convolutions that are neither first nor last, and the nodes between them.

    The first one has three channels of a wide range, and int8 would not make it faster; the last
    ones belong to the head. Other nodes prepare images, activate the first map, or decode.
    """
    nodes = list(graph.node)
    convolutions = {node.name for node in nodes if node.op_type == CONVOLUTION}
    later = _reached(nodes, convolutions, "input", "output")
    behind_later = _reached(nodes, convolutions & later, "input", "output")
    lead = _reached(nodes[::-1], convolutions, "output", "input")
    inner = lead & (behind_later | convolutions & later)
    return [node for node in nodes if node.name in inner]


def _reached(nodes: Sequence[Any], starts: set[str], taken: str, returned: str) -> set[str]:
    """Return the names of all nodes downstream of `starts`."""
    maps: set[str] = set()
    found: set[str] = set()
    for node in nodes:
        if not maps.isdisjoint(getattr(node, taken)):
            found.add(node.name)
        if node.name in found or node.name in starts:
            maps.update(filter(None, getattr(node, returned)))
    return found


def maps_of(graph: Any, nodes: Sequence[Any]) -> list[str]:
    """Return the distinct names of the nodes' inputs and outputs, without constants."""
    constants = {array.name for array in graph.initializer}
    constants.update(name for node in graph.node if not any(node.input) for name in node.output)
    names = (name for node in nodes for name in (*node.input, *node.output))
    return [name for name in dict.fromkeys(names) if name and name not in constants]


def find_ranges(model: Any, names: Sequence[str], images: Calibration) -> Ranges:
    """Run a graph on images; return the range of each map, with 0 and without outliers.

    Args:
        model: an onnx.ModelProto.
        names: names of the maps.
        images: yields at least one input of the graph.
    """
    onnx = import_optional("onnx", "--int8")
    runtime = import_optional("onnxruntime", "--int8")
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    source = shown.graph.input[0].name
    computed = [name for name in names if name != source]
    del shown.graph.output[:]
    shown.graph.output.extend(map(onnx.helper.make_empty_tensor_value_info, computed))
    session = runtime.InferenceSession(
        shown.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for batch in images():
        maps = dict(zip(computed, session.run(computed, {source: batch}), strict=True))
        for name in names:
            drawn[name].append(sampled(name, maps.get(name, batch)))
    return {name: _trimmed(np.concatenate(drawn.pop(name))) for name in names}


def sampled(name: str, values: np.ndarray) -> np.ndarray:
    """Return about `MOST_VALUES` of a map, evenly spaced; UserError if one is not finite."""
    flat = values.ravel()
    low, high = float(flat.min()), float(flat.max())
    if not np.isfinite((low, high)).all():
        raise UserError(
            f"--int8: the values of the model are not finite (map {name}, {low:g} to {high:g}); "
            "its weights are damaged or training diverged"
        )
    step = max(1, flat.size // MOST_VALUES)
    while math.gcd(step, flat.size) > 1:  # or it would leave out some columns
        step += 1
    return flat[::step].copy()


def _trimmed(values: np.ndarray) -> tuple[np.float32, np.float32]:
    """Return the range around 0 without `OUTSIDE` of the values at either end."""
    low, high = np.quantile(values, (OUTSIDE, 1 - OUTSIDE))
    return np.float32(min(0, low)), np.float32(max(0, low + LEAST_SPAN, high))


def write_calibration_list(path: Path, images: Sequence[Path]) -> None:
    """Write the paths of images, one per line, for the calibration of other programs."""
    try:
        with atomic_text_file(path) as file:
            file.writelines(f"{image}\n" for image in images)
    except OSError as error:
        raise UserError(f"--calibration-list {path}: {error.strerror}") from error
    say(f"{path}: {count(len(images), 'image')} for calibration")
