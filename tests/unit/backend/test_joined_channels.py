"""How PyTorch lays out the gradients of maps that were joined along their channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import backend
from backend import autograd, ops

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow has one layout")


def gradients_of_joined(order: Any) -> list[Any]:
    """Return the gradients that reach two maps (2, 3, 4, 5) behind those that are joined."""
    variables = [autograd.variable(np.ones((2, 3, 4, 5), "float32")) for _ in range(2)]
    joined = ops.cat([order(x) for x in variables], dim=1)
    weights = ops.tensor(np.arange(240, dtype="float32").reshape(2, 6, 4, 5))
    seen: list[Any] = []
    for x in joined.grad_fn.next_functions:
        x[0].register_prehook(lambda given: seen.append(given[0]))
    autograd.gradients(ops.sum(joined * order(weights)), variables)
    return seen


def test_each_map_gets_a_gradient_of_its_own() -> None:
    seen = gradients_of_joined(ops.channels_last)
    assert [tuple(x.shape) for x in seen] == [(2, 3, 4, 5)] * 2
    for gradient in seen:
        assert gradient.stride() == (60, 1, 15, 3)  # channels last, none of another map between


def test_contiguous_maps_get_parts_of_one_gradient() -> None:
    for gradient in gradients_of_joined(lambda x: x):
        assert gradient.stride() == (120, 20, 5, 1)
