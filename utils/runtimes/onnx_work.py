"""The largest output of an ONNX node, and the work that it takes, computed from shapes.

Before: `onnx_tensors.py`. After: `onnx_sizes.py` adds up the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

WEIGHED = {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv"}
MULTIPLIED = {"MatMul", "MatMulInteger", "Gemm", "QLinearMatMul"}
POOLED = {"AveragePool", "MaxPool"}
COMPARISON = 10  # multiplications that the overlap of two boxes takes

Shape = tuple[int, ...]


def shape_of(kind: Any) -> Shape | None:
    """Return the shape of a tensor's type; None if a size is not known."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    sizes = [x.dim_value if x.HasField("dim_value") else -1 for x in kind.tensor_type.shape.dim]
    return tuple(sizes) if all(size >= 0 for size in sizes) else None


def work_of(node: Any, types: Mapping[str, Any], values: Mapping[str, Any]) -> int:
    """Return the work of a node in multiplications, at least a number that it reads or makes one.

    Its inputs are as many as its outputs could be inferred from.
    """
    made = sum(_numbers(types[name]) for name in node.output if name)
    read = sum(max(_numbers(types[name]), made) for name in node.input if name)
    if node.op_type in POOLED:
        areas = [math.prod(x.ints) for x in node.attribute if x.name == "kernel_shape"]
        return made * max(areas, default=1)
    if node.op_type == "NonMaxSuppression":
        *_, boxes = shape_of(types[node.input[1]]) or (0,)  # each against all that are kept
        return read + COMPARISON * boxes * _largest_suppressed(node, types, values)[0]
    return made + read + _products(node, types)


def _numbers(kind: Any) -> int:
    return math.prod(shape_of(kind) or ())


def _products(node: Any, types: Mapping[str, Any]) -> int:
    """Return the multiplications of a node that convolves or multiplies maps; else 0.

    Its inputs are as many as its outputs could be inferred from.
    """
    if node.op_type in MULTIPLIED:
        first = shape_of(types[node.input[0]]) or (1,)
        return math.prod(shape_of(types[node.output[0]]) or ()) * max(first or (1,))
    if node.op_type in WEIGHED:
        weights = node.input[3 if node.op_type == "QLinearConv" else 1]
        on = node.input[0] if node.op_type == "ConvTranspose" else node.output[0]
        batch, _, *sides = shape_of(types[on]) or (0, 0)
        return math.prod(shape_of(types[weights]) or ()) * batch * math.prod(sides)
    return 0


def _largest_nonzero(node: Any, types: Mapping[str, Any], values: Any) -> Shape:
    shape = shape_of(types[node.input[0]]) or ()
    return len(shape), math.prod(shape)


def _largest_suppressed(node: Any, types: Mapping[str, Any], values: Any) -> Shape:
    """Return the shape of NonMaxSuppression's output when every box stays."""
    batch, classes, boxes = shape_of(types[node.input[1]]) or (0, 0, 0)
    most = values.get(node.input[2]) if len(node.input) > 2 else None
    kept = boxes if most is None or not most.size else min(max(int(most.flat[0]), 0), boxes)
    return batch * classes * kept, 3


# Outputs whose size depends on the image, by what makes them: the largest they can be.
DEPENDENT = {"NonZero": _largest_nonzero, "NonMaxSuppression": _largest_suppressed}
