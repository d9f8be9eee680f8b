"""Checks of `contract.Ops`: detection."""

from __future__ import annotations

import itertools

import numpy as np

from tests.conformance.judging import Backend, assert_equal, assert_raises, judges, uniform


@judges("ops.take_at")
def takes_rows_in_the_order_of_their_places(b: Backend) -> None:
    for dtype in ("float32", "float64", "int64"):
        x = uniform((2, 3, 4, 5), dtype, -9, 9)
        for order in ((0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)):
            permuted, array = b.ops.tensor(x).permute(*order), x.transpose(order)
            for ndim in (1, 2, 3, 4):
                for count in (0, 1, 50):  # some rows more than once
                    places = [
                        uniform((count,), "int64", 0, size, seed=dim)
                        for dim, size in enumerate(array.shape[:ndim])
                    ]
                    found = b.ops.take_at(permuted, places)
                    assert_equal(b.ops.to_numpy(found), array[tuple(places)])


@judges("ops.take_at")
def takes_rows_of_a_part_and_of_nothing(b: Backend) -> None:
    x, places = uniform((4, 6)), [np.array([1, 0, 1])]
    for part in (np.s_[1:3], np.s_[::2]):
        found = b.ops.take_at(b.ops.tensor(x)[part], places)
        assert_equal(b.ops.to_numpy(found), x[part][tuple(places)])
    found = b.ops.take_at(b.zeros((2, 0)), places)
    assert_equal(b.ops.to_numpy(found), np.zeros((3, 0), "float32"))
    found = b.ops.take_at(b.zeros((0, 3)), [np.zeros(0, np.int64)])
    assert_equal(b.ops.to_numpy(found), np.zeros((0, 3), "float32"))


@judges("ops.take_at")
def refuses_other_places(b: Backend) -> None:
    x, index = b.zeros((2, 3)), np.array([0, 1])
    for places, text in (
        ([], "one to 2"),
        ([index, index, index], "one to 2"),
        ([index, index[:1]], "(1,)"),
        ([index.reshape(1, 2)], "(1, 2)"),
        ([index.astype(np.uint8)], "uint8"),
        ([index > 0], "bool"),
        ([index, index + 2], "2 to 3"),
        ([index - 1], "-1"),
    ):
        assert_raises(ValueError, lambda p=places: b.ops.take_at(x, p), text)


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
