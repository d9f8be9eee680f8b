"""The ONNX backend keeps the contract of inference with graphs of the ONNX standard.

It is judged in a process of its own, by hand: `YOLO_BACKEND=onnx python -m pytest
tests/conformance/test_conformance.py`. As a plugin of pytest, this file has each graph checked from
which it computes values, with all that it computes on the way: the shape and dtype that a tensor
says it has must be those that the onnx package infers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from duet.backend.onnx import model_proto
from duet.backend.onnx.model_proto import build_model
from duet.backend.onnx.recording import Tensor, apply, constant
from tests.conformance.judging import checks_of
from tests.environments import python

COMMAND = "pytest -p no:cacheprovider -p tests.conformance.test_onnx_backend"


def require_standard(outputs: Sequence[Tensor], inputs: Sequence[Tensor], opset: int) -> None:
    """Raise an error of the onnx package unless the graph is as the standard has it."""
    computed = [x for x in model_proto._in_order(outputs) if x.array is None and x.node.operation]
    model = build_model(computed, inputs, opset)
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


@pytest.fixture(autouse=True)
def checked_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(outputs: Any, inputs: Any, opset: int = model_proto.OPSET) -> Any:
        require_standard(outputs, inputs, opset)
        return build_model(outputs, inputs, opset)

    monkeypatch.setattr(model_proto, "build_model", checked)


def test_onnx_backend_keeps_promises_with_standard_graphs() -> None:
    words = [*COMMAND.split(), "tests/conformance/test_conformance.py"]
    done = python("-m", *words, YOLO_BACKEND="onnx")
    assert done.returncode == 0, done.stdout
    *_, last = done.stdout.splitlines()
    checks = len(checks_of(trains=False))
    assert checks > 70 and last.startswith(f"{checks} passed in"), last


@pytest.mark.parametrize(
    ("shape", "dtype", "attributes"),
    [((3, 2), "float32", {}), ((2, 3), "float64", {}), ((2, 3), "float32", {"slope": 1.0})],
    ids=["shape", "dtype", "attribute"],
)
def test_nonstandard_graph_is_detected(shape, dtype, attributes) -> None:
    x = constant(np.ones((2, 3), np.float32))
    require_standard([apply("Sigmoid", (x,), (2, 3), "float32")], [], 17)
    with pytest.raises(Exception, match=r"differ|slope|type"):
        require_standard([apply("Sigmoid", (x,), shape, dtype, **attributes)], [], 17)
