"""What raw maps in half precision cost, beside the same numbers in float32, for each head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from duet.backend import amp, autograd, ops
from duet.models.heads.classify.head import ClassificationLoss
from tests.golden_models import arrays_of
from tests.unit.models.heads.anchor import test_loss as boxes
from tests.unit.models.heads.classify.test_loss import drawn, targets_of
from tests.unit.models.heads.distribution import test_loss as edges
from tests.unit.models.heads.mask import test_loss as masks

# Gradients of up to 6 claims on a cell, each rounded to 8 bits, and their sums.
TOLERANCE = 12 * 2.0**-9


def detection() -> tuple[Any, list[np.ndarray], Any]:
    return boxes.make_loss(3), [ops.to_numpy(x) for x in boxes.raw_maps(3)], boxes.CROWDED


def segmentation() -> tuple[Any, list[np.ndarray], Any]:
    return masks.make_loss(), masks.raw_arrays(), masks.encoded("overlap")


def classification() -> tuple[Any, list[np.ndarray], Any]:
    logits, classes = drawn()
    return ClassificationLoss(0.1), [logits], targets_of(classes)


def anchor_free() -> tuple[Any, list[np.ndarray], Any]:
    return edges.make_loss(edges.STRIDES, 3), *edges.drawn()


def rounded(x: Any, dtype: str) -> Any:
    """Return what an autocast makes of numbers, as the layers return them."""
    size = x.shape[x.ndim - 1]
    with amp.autocast("cpu", dtype):
        rows = ops.matmul(x.reshape(-1, size), ops.tensor(np.eye(size, dtype=np.float32)))
    return rows.reshape(*x.shape)


@pytest.mark.parametrize("case", [detection, anchor_free, segmentation, classification])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_maps_cost_what_they_do_in_float32(case, dtype):
    if dtype not in amp.supported("cpu"):
        pytest.skip(f"the backend has no {dtype}")
    loss, arrays, targets = case()
    variables = [autograd.variable(array.astype(np.float32)) for array in arrays]
    found = []
    for wide in (False, True):
        raw = [rounded(x, dtype) for x in variables]
        assert all(ops.dtype_of(x) == dtype for x in raw)
        terms = loss([ops.cast(x, "float32") if wide else x for x in raw], targets)
        gradients = autograd.gradients(terms.total, variables)
        found.append((arrays_of(terms), [ops.to_numpy(x) for x in gradients]))
    (costs, gradients), (wide_costs, wide_gradients) = found
    for name, cost in costs.items():
        assert cost.dtype == np.float32 and cost > 0
        np.testing.assert_array_equal(cost, wide_costs[name])
    for gradient, wide in zip(gradients, wide_gradients, strict=True):
        atol = TOLERANCE * np.abs(wide).max()
        np.testing.assert_allclose(gradient, wide, rtol=TOLERANCE, atol=atol)
