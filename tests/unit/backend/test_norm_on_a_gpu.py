"""The norm of gradients where the host does not read it: on a GPU, here in that form on a CPU."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import backend
from backend import autograd, ops
from models.training.fast import backpropagate
from tests.conformance.all_checks import CHECKS
from tests.conformance.judging import Backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow reads the norm anywhere")


@pytest.fixture(autouse=True)
def nothing_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("backend.torch.ops")
    monkeypatch.setattr(module, "reads_at_once", lambda x: False)


@pytest.mark.parametrize("label", [c.label for c in CHECKS if c.name == "autograd.clip_gradients"])
def test_it_keeps_every_promise_of_the_plain_form(label: str) -> None:
    (check,) = (c for c in CHECKS if (c.name, c.label) == ("autograd.clip_gradients", label))
    check.run(Backend())


def test_the_norm_of_finite_gradients_beyond_float32_squares_is_finite() -> None:
    x = autograd.variable(np.zeros(2, np.float32))
    backpropagate({"x": x}, {"x": np.array([3e30, 4e30], np.float32)})
    assert ops.to_numpy(autograd.clip_gradients([x], 10.0)) == pytest.approx(5e30)
    np.testing.assert_allclose(ops.to_numpy(x.grad), [6, 8], rtol=1e-6)
