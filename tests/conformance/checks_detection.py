"""Checks of `contract.Ops`: detection."""

from __future__ import annotations

import itertools

import numpy as np

from tests.conformance.judging import Backend, assert_equal, assert_raises, judges, uniform


@judges("ops.take_where")
def takes_rows_where_the_condition_holds(b: Backend) -> None:
    for dtype in ("float32", "float64", "int64"):
        x = uniform((2, 3, 4, 5), dtype, -9, 9)
        for order in ((0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)):
            permuted, array = b.ops.tensor(x).permute(*order), x.transpose(order)
            for ndim in (1, 2, 3, 4):
                chosen = uniform(array.shape[:ndim], seed=ndim) > 0.5
                for condition in (chosen, np.zeros_like(chosen), np.ones_like(chosen)):
                    found = b.ops.take_where(permuted, b.ops.tensor(condition))
                    assert_equal(b.ops.to_numpy(found), array[condition])


@judges("ops.take_where")
def takes_rows_of_a_part_and_of_nothing(b: Backend) -> None:
    x = uniform((4, 6))
    condition = np.array([True, False])
    for part in (np.s_[1:3], np.s_[::2]):
        found = b.ops.take_where(b.ops.tensor(x)[part], b.ops.tensor(condition))
        assert_equal(b.ops.to_numpy(found), x[part][condition])
    for shape in ((0, 3), (3, 0)):
        condition = np.ones(shape[:1], bool)
        found = b.ops.take_where(b.zeros(shape), b.ops.tensor(condition))
        assert_equal(b.ops.to_numpy(found), np.zeros(shape, "float32"))


@judges("ops.take_where")
def refuses_another_condition(b: Backend) -> None:
    x = b.zeros((2, 3))
    for condition, text in (
        (b.zeros((3,), "bool"), "(3,)"),
        (b.zeros((2, 3, 1), "bool"), "(2, 3, 1)"),
        (b.zeros((), "bool"), "()"),
        (b.zeros((2,), "uint8"), "uint8"),
        (b.zeros((2,), "int64"), "int64"),
    ):
        assert_raises(ValueError, lambda c=condition: b.ops.take_where(x, c), text)


@judges("ops.cells")
def column_and_row_of_each_cell(b: Backend) -> None:
    for height, width in ((1, 1), (2, 3), (7, 1), (1, 4), (20, 12), (0, 3), (2, 0)):
        rows_and_columns = list(itertools.product(range(height), range(width)))
        swapped = [(column, row) for row, column in rows_and_columns]
        for dtype in ("float32", "float64"):
            found = b.ops.cells(height, width, b.zeros((2,), dtype))
            wanted = np.array(swapped, dtype).reshape(1, 1, height, width, 2)
            assert b.ops.device_of(found) == "cpu"
            assert_equal(b.ops.to_numpy(found), wanted)


@judges("ops.cells")
def cells_of_the_sizes_of_a_tensor(b: Backend) -> None:
    x = b.ops.tensor(uniform((2, 5, 3, 4), "float32"))
    half = x[:, :, :2]
    found = b.ops.cells(*half.shape[2:], half)
    assert tuple(found.shape) == (1, 1, 2, 4, 2)
    assert_equal(b.ops.to_numpy(found + 0.5)[0, 0, 1, 3], np.array([3.5, 1.5], "float32"))
