"""Gradients of rows that are taken more than once, with several threads on a CPU.

PyTorch's `index_put_` adds 32768 numbers or more in any order then, and a sum of three has other
bits in another order. So tests of small maps cannot see it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from duet import backend
from duet.backend import autograd, ops

NUM_ROWS, COLUMNS, TAKEN = 2000, 85, 4000
TRIALS = 12
RANDOM = np.random.Generator(np.random.Philox(0))
INDEX = RANDOM.integers(0, 100, TAKEN)  # each row about 40 times
WEIGHTS = RANDOM.standard_normal((TAKEN, COLUMNS)).astype(np.float32)


@pytest.fixture(autouse=True)
def several_threads() -> Iterator[None]:
    before = backend.device.host_threads()
    backend.device.set_host_threads(4)
    yield
    backend.device.set_host_threads(before)


def check_gradients(take: Any, compile_: Any = lambda function: function) -> None:
    """Require gradients that are summed up one after the other, in each of some trials."""
    total = compile_(lambda rows, index, weights: ops.sum(take(rows, index) * weights))
    wanted = np.zeros((NUM_ROWS, COLUMNS), np.float32)
    np.add.at(wanted, INDEX, WEIGHTS)
    index, weights = ops.tensor(INDEX), ops.tensor(WEIGHTS)
    for _ in range(TRIALS):
        rows = autograd.variable(np.ones((NUM_ROWS, COLUMNS), np.float32))
        (gradient,) = autograd.gradients(total(rows, index, weights), [rows])
        np.testing.assert_array_equal(ops.to_numpy(gradient), wanted)


def rows_beside_a_column(rows: Any, index: Any) -> Any:
    return ops.take_rows_and_column(rows, index, 4)[0]


@pytest.mark.parametrize("take", [ops.take_rows, rows_beside_a_column])
def test_gradients_are_summed_in_row_order(take: Any) -> None:
    check_gradients(take)


def test_compiled_gradients_are_summed_in_row_order() -> None:
    if problem := autograd.compile_problem("cpu"):
        pytest.skip(problem)
    check_gradients(rows_beside_a_column, autograd.compiled)
