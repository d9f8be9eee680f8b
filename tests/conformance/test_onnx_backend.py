"""The ONNX backend keeps the contract of inference, judged in a process of its own.

By hand: `YOLO_BACKEND=onnx python -m pytest tests/conformance/test_conformance.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from duet.backend.onnx.recording import apply, constant
from duet.utils.project import PROJECT
from tests.conformance.judging import checks_of
from tests.conformance.strict_graphs import require_standard

COMMAND = "pytest -p no:cacheprovider -p tests.conformance.strict_graphs"


def test_it_keeps_its_promises_with_graphs_of_the_standard() -> None:
    done = subprocess.run(
        [sys.executable, "-m", *COMMAND.split(), "tests/conformance/test_conformance.py"],
        cwd=PROJECT,
        env={**os.environ, "YOLO_BACKEND": "onnx"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    *_, last = done.stdout.splitlines()
    checks = len(checks_of(trains=False))
    assert checks > 70 and last.startswith(f"{checks} passed in"), last


@pytest.mark.parametrize(
    ("shape", "dtype", "attributes"),
    [((3, 2), "float32", {}), ((2, 3), "float64", {}), ((2, 3), "float32", {"slope": 1.0})],
    ids=["shape", "dtype", "attribute"],
)
def test_a_graph_that_is_not_of_the_standard_is_found(shape, dtype, attributes) -> None:
    x = constant(np.ones((2, 3), np.float32))
    require_standard([apply("Sigmoid", (x,), (2, 3), "float32")], [], 17)
    with pytest.raises(Exception, match=r"differ|slope|type"):
        require_standard([apply("Sigmoid", (x,), shape, dtype, **attributes)], [], 17)
