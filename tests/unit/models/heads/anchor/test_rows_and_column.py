"""The loss of positives and of one column of all rows, as one operation and as two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backend import autograd, fused, ops
from tests.unit.models.heads.anchor.test_loss import make_loss, raw_maps
from utils.data.loading.batch import Targets

# Of one place and size: most of them claim cells that others claim, too.
CROWDED = Targets(
    np.repeat(np.arange(2), 6),
    np.arange(12) % 3,
    np.tile(np.array([[0.4, 0.6, 0.2, 0.3]], np.float32), (12, 1)),
)


def two_operations(x: Any, index: Any, column: int) -> tuple[Any, Any]:
    return ops.take_rows(x, index), x[:, column]


def found_of(loss: Any, raw: list[Any], variables: list[Any]) -> list[np.ndarray]:
    terms = loss(raw, CROWDED)
    gradients = autograd.gradients(terms.total, variables)
    return [ops.to_numpy(x) for x in (*terms.by_name.values(), *gradients)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_operation_gives_the_bits_of_two(dtype, monkeypatch):
    loss, variables = make_loss(3), raw_maps(3, dtype)
    found = found_of(loss, variables, variables)
    monkeypatch.setattr(fused, "take_rows_and_column", two_operations)
    for one, two in zip(found, found_of(loss, variables, variables), strict=True):
        assert np.abs(two).max() > 0
        np.testing.assert_array_equal(one, two)
