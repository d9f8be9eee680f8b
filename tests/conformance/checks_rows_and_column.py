"""Checks of `contract.Fused.take_rows_and_column`."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.checks_shapes import check_index_errors
from tests.conformance.judging import (
    Backend,
    assert_equal,
    assert_op,
    judges,
    uniform,
)

NAME = "fused.take_rows_and_column"
INDICES = ([2, 0], [1, 3, 1, 1], [])
# Roundings to 8 bits: of three gradients of a row, and of their sum.
HALF_TOLERANCE = 4 * 2.0**-9


@judges(NAME)
def gives_rows_and_a_column_with_the_gradients_of_both(b: Backend) -> None:
    for shape, indices in (((4, 3), INDICES), ((4, 1), INDICES), ((0, 3), ([],))):
        for rows, column in itertools.product(indices, {0, shape[1] - 1}):
            index = np.array(rows, "int64")
            args = index, column
            for place, wanted in enumerate((lambda x, i, c: x[i], lambda x, i, c: x[:, c])):
                found = part(b, place)
                assert_op(b, found, wanted, shape, args=args, gradient=shape == (4, 3))
            assert_op(b, partial(joined, b), both, shape, args=args, gradient=shape == (4, 3))


@judges(NAME)
def half_precision_is_returned_in_float32(b: Backend) -> None:
    index = np.array([1, 3, 1, 1])
    for dtype in b.amp.supported("cpu"):
        found = []
        for run in (joined, joined_of_a_cast):
            variable = b.variable(uniform((4, 3), "float32"))
            with b.amp.autocast("cpu", dtype):
                half = b.ops.matmul(variable, b.ops.tensor(np.eye(3, dtype="float32")))
            assert b.ops.dtype_of(half) == dtype
            y = run(b, half, index, 2)
            assert b.ops.dtype_of(y) == "float32"
            total = b.ops.sum(y * b.ops.tensor(uniform(y.shape, "float32", seed=5)))
            (gradient,) = b.autograd.gradients(total, [variable])
            found.append((b.ops.to_numpy(y), b.ops.to_numpy(gradient)))
        (values, gradient), (plain_values, plain_gradient) = found
        np.testing.assert_array_equal(values, plain_values)
        assert_equal(gradient, plain_gradient, HALF_TOLERANCE)


@judges(NAME)
def refuses_rows_out_of_range(b: Backend) -> None:
    check_index_errors(b, lambda x, index: b.fused.take_rows_and_column(x, index, 1))


def part(b: Backend, place: int) -> Any:
    return lambda x, index, column: b.fused.take_rows_and_column(x, b.ops.tensor(index), column)[
        place
    ]


def both(x: np.ndarray, index: np.ndarray, column: int) -> np.ndarray:
    return np.concatenate((x[index].reshape(-1), x[:, column]))


def joined(b: Backend, x: Any, index: np.ndarray, column: int) -> Any:
    """Return rows and column one after the other, (K * R + N,)."""
    rows, values = b.fused.take_rows_and_column(x, b.ops.tensor(index), column)
    return b.ops.cat([rows.reshape(-1), values])


def joined_of_a_cast(b: Backend, x: Any, index: np.ndarray, column: int) -> Any:
    full = b.ops.cast(x, "float32")
    rows = b.ops.take_rows(full, b.ops.tensor(index))
    return b.ops.cat([rows.reshape(-1), full[:, column]])
