"""Parts of an exported graph, run alone by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from duet.backend.onnx.model_proto import build_model
from duet.backend.onnx.recording import Tensor, graph_input
from duet.utils.optional import import_optional

onnx, onnxruntime = import_optional("onnx", "a test"), import_optional("onnxruntime", "a test")


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
