"""A pytest plugin, `-p tests.conformance.strict_graphs`: graphs keep to the ONNX standard.

Each graph from which the ONNX backend computes values is checked with all that it computes on the
way: the shape and dtype that a tensor says it has must be those that the onnx package infers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import pytest

from duet.backend.onnx import model_proto
from duet.backend.onnx.model_proto import build_model
from duet.backend.onnx.recording import Tensor


def require_standard(outputs: Sequence[Tensor], inputs: Sequence[Tensor], opset: int) -> None:
    """Raise an error of the onnx package unless the graph is as the standard has it."""
    computed = [x for x in model_proto._in_order(outputs) if x.array is None and x.node.operation]
    model = build_model(computed, inputs, opset)
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


@pytest.fixture(autouse=True)
def graphs_keep_to_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(outputs: Any, inputs: Any, opset: int = model_proto.OPSET) -> Any:
        require_standard(outputs, inputs, opset)
        return build_model(outputs, inputs, opset)

    monkeypatch.setattr(model_proto, "build_model", checked)
