"""OneFlow's BatchNorm: the mean is subtracted where its kernel would lose digits, there alone."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import backend
from backend import nn, ops

pytestmark = pytest.mark.skipif(backend.use() != "oneflow", reason="about a kernel of OneFlow")


def variance_of(x: np.ndarray) -> float:
    layer = nn.BatchNorm2d(1, momentum=1.0)
    layer(ops.tensor(x))
    return float(nn.state_arrays(layer)["running_var"][0])


def test_the_mean_is_subtracted_where_the_kernel_loses_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = importlib.import_module("backend.oneflow.nn")
    x = np.random.default_rng(0).uniform(999, 1001, (4, 1, 16, 16)).astype(np.float32)
    wanted = x.astype(np.float64).var(ddof=1)
    assert module.loses_digits("cpu")
    assert abs(variance_of(x) - wanted) < 1e-4
    monkeypatch.setattr(module, "loses_digits", lambda device: False)  # as on a GPU that does not
    assert abs(variance_of(x) - wanted) > 0.01


def test_a_kernel_that_keeps_all_digits_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("backend.oneflow.nn")
    exact = nn.BatchNorm2d  # which subtracts the mean

    def layer_of(num_features: int, momentum: float) -> object:
        return exact(num_features, momentum=momentum)

    assert module.loses_digits("cpu")  # so that the answer is there for the layer itself
    monkeypatch.setattr(module.oneflow.nn, "BatchNorm2d", layer_of)
    assert not module.loses_digits.__wrapped__("cpu")
