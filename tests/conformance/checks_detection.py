"""Checks of `contract.Ops`: detection."""

from __future__ import annotations

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
        found = b.ops.take_where(b.ops.zeros(shape), b.ops.tensor(condition))
        assert_equal(b.ops.to_numpy(found), np.zeros(shape, "float32"))


@judges("ops.take_where")
def refuses_another_condition(b: Backend) -> None:
    x = b.ops.zeros((2, 3))
    for condition, text in (
        (b.ops.zeros((3,), "bool"), "(3,)"),
        (b.ops.zeros((2, 3, 1), "bool"), "(2, 3, 1)"),
        (b.ops.zeros((), "bool"), "()"),
        (b.ops.zeros((2,), "uint8"), "uint8"),
        (b.ops.zeros((2,), "int64"), "int64"),
    ):
        assert_raises(ValueError, lambda c=condition: b.ops.take_where(x, c), text)
