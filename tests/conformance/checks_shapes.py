"""Checks of `contract.Ops`: reductions, joining, rows by index, and cells."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.judging import (
    CHECKS,
    CLEAR_ERROR,
    DTYPES,
    FLOATS,
    Backend,
    Check,
    assert_equal,
    assert_gradient,
    assert_op,
    assert_refused,
    assert_values,
    judges,
    uniform,
)

# Relative to the largest value; sums of a few numbers err by their count times rounding.
SUM_TOLERANCE = {"float32": 1e-6, "float64": 1e-14}

# Shape and dimension: every dimension of a few shapes, negative ones and empty ones too.
REDUCED = (
    ((3,), 0),
    ((2, 3), 0),
    ((2, 3), -1),
    ((2, 3, 4), 1),
    ((2, 3, 4), -3),
    ((0, 3), 1),
    ((2, 0), 0),
)
NOTHING_TO_REDUCE = (((0,), 0), ((0, 3), 0), ((2, 0), 1))
WHOLE = ((3,), (2, 3), (2, 3, 4), ())


def check_reduction(b: Backend, function: Any, reference: Callable[..., Any]) -> None:
    def reduced(x: np.ndarray, dim: int | None = None, keepdim: bool = False) -> Any:
        return reference(x, axis=dim, keepdims=keepdim)

    cases = [(shape, ()) for shape in WHOLE]
    cases += [(shape, (dim, keep)) for shape, dim in REDUCED for keep in (False, True)]
    for shape, args in cases:
        assert_op(b, function, reduced, shape, args=args, tolerance=SUM_TOLERANCE)


@judges("ops.sum")
def sums_all_or_along_a_dimension(b: Backend) -> None:
    check_reduction(b, b.ops.sum, np.sum)
    for shape, dim in NOTHING_TO_REDUCE:
        assert_values(b, b.ops.sum, np.sum, np.zeros(shape))
        assert_values(b, b.ops.sum, np.sum, np.zeros(shape), args=(dim,))


@judges("ops.mean")
def averages_all_or_along_a_dimension(b: Backend) -> None:
    check_reduction(b, b.ops.mean, np.mean)


@judges("ops.mean")
def mean_of_nothing_is_nan(b: Backend) -> None:
    for shape, dim in NOTHING_TO_REDUCE:
        for dtype in FLOATS:
            whole = b.ops.mean(b.zeros(shape, dtype))
            assert_equal(b.ops.to_numpy(whole), np.array(np.nan, dtype))
            for keepdim in (False, True):
                found = b.ops.mean(b.zeros(shape, dtype), dim, keepdim)
                wanted = np.sum(np.zeros(shape, dtype), dim, keepdims=keepdim) + np.nan
                assert_equal(b.ops.to_numpy(found), wanted.astype(dtype))


@judges("ops.amax")
def largest_along_a_dimension(b: Backend) -> None:
    for shape, dim in REDUCED:
        assert_op(b, b.ops.amax, np.max, shape, args=(dim,))


@judges("ops.amax")
def largest_beside_nan_is_nan(b: Backend) -> None:
    x = np.full((4, 3), [1.0, 3.0, 2.0])
    x[[0, 1, 2], [0, 1, 2]] = np.nan
    for dtype, dim in itertools.product(FLOATS, (0, 1, -1)):
        assert_values(b, b.ops.amax, np.max, x.astype(dtype), args=(dim,))


@judges("ops.amax")
def largest_of_nothing_is_an_error(b: Backend) -> None:
    for shape, dim in NOTHING_TO_REDUCE:
        assert_refused(str(shape), b.ops.amax, b.zeros(shape), dim)
    assert_refused("", b.ops.amax, b.zeros(()), 0, errors=CLEAR_ERROR)


@judges("ops.top_k")
def largest_of_each_row_come_in_order_with_their_columns(b: Backend) -> None:
    for shape, k in (((3, 7), 2), ((1, 300), 10), ((4, 5), 5), ((0, 4), 2)):
        for dtype in FLOATS:
            x = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape).astype(dtype)
            values, columns = map(b.ops.to_numpy, b.ops.top_k(b.ops.tensor(x), k))
            wanted = np.argsort(-x, axis=1)[:, :k]
            assert_equal(columns, wanted)
            assert_equal(values, np.take_along_axis(x, wanted, axis=1))


@judges("ops.top_k")
def equal_values_are_each_taken_once(b: Backend) -> None:
    values, columns = map(b.ops.to_numpy, b.ops.top_k(b.zeros((2, 40)), 10))
    assert_equal(values, np.zeros((2, 10), np.float32))
    assert all(len(set(row)) == 10 for row in columns.tolist())


@judges("ops.top_k")
def largest_of_too_few_is_an_error(b: Backend) -> None:
    for shape, k in (((2, 3), 4), ((2, 3), 0), ((3,), 1)):
        assert_refused(str(shape), b.ops.top_k, b.zeros(shape), k)


JOINED = (
    (((2, 3), (2, 3)), 0),
    (((2, 3), (2, 3)), -1),
    (((2, 3), (2, 3), (2, 3)), 1),
    (((0, 3), (0, 3)), 0),
    (((0, 3), (0, 3)), 1),
    (((2, 0), (2, 0)), 1),
    (((4,),), 0),
)
FURTHER_JOINED = {
    "cat": ((((2, 3), (1, 3), (0, 3)), 0), (((2, 0), (2, 4)), 1)),
    "stack": ((((2, 3), (2, 3)), 2), (((), ()), 0)),
}


def check_joining(b: Backend, name: str, reference: Callable[..., Any]) -> None:
    function = getattr(b.ops, name)
    for shapes, dim in (*JOINED, *FURTHER_JOINED[name]):
        pair = (lambda *x, d=dim: function(x, d)), (lambda *x, d=dim: reference(x, axis=d))
        for dtype in DTYPES[2:]:
            arrays = [uniform(shape, dtype, 0, 9, seed) for seed, shape in enumerate(shapes)]
            assert_values(b, *pair, *arrays)
        assert_op(b, *pair, *shapes)
    for shape, dim in itertools.product(((2, 3), (0, 3), (2, 0)), (0, 1, -1)):
        assert_gradient(
            b,
            lambda x, dim=dim: function([x, x], dim),
            lambda x, dim=dim: reference([x, x], axis=dim),
            uniform(shape),
        )
    x = b.zeros((2, 3))
    assert_refused("none", function, [])
    assert_refused("float64", function, [x, b.zeros((2, 3), "float64")])
    assert_refused("", function, [x, b.zeros((2, 4))], errors=CLEAR_ERROR)


@judges("ops.cat")
def joins_along_a_dimension(b: Backend) -> None:
    check_joining(b, "cat", np.concatenate)


@judges("ops.stack")
def joins_along_a_new_dimension(b: Backend) -> None:
    check_joining(b, "stack", np.stack)


@judges("ops.cat")
def joins_channels_last_maps(b: Backend) -> None:
    if not b.device.supports("channels_last"):
        return
    for channels in ((3, 1), (2, 2, 2)):
        arrays = [uniform((2, size, 3, 2), seed=seed) for seed, size in enumerate(channels)]
        for dim in (1, 3):
            shown = arrays if dim == 1 else arrays[:1] * 2
            assert_gradient(
                b,
                lambda *maps, dim=dim: b.ops.cat([b.ops.channels_last(x) for x in maps], dim),
                lambda *maps, dim=dim: np.concatenate(maps, dim),
                *shown,
            )


@judges("ops.take_rows")
def takes_rows_in_the_order_given(b: Backend) -> None:
    for rows in ([0, 2, 2], [3], [], [3, 2, 1, 0]):
        index = np.array(rows, "int64")
        for shape in ((4,), (4, 3), (4, 2, 2), (4, 0)):
            for dtype in ("float32", "float64", "int64", "bool"):
                x = uniform(shape, dtype, 0, 9)
                assert_values(b, b.ops.take_rows, lambda x, i: x[i], x, index)
            assert_gradient(
                b,
                lambda x, index=index: b.ops.take_rows(x, b.ops.tensor(index)),
                lambda x, index=index: x[index],
                uniform(shape),
            )


def check_index_errors(b: Backend, function: Callable[[Any, Any], Any]) -> None:
    """Require that function(x, index) refuses rows outside x and what is not a row index."""
    x = b.zeros((4, 2))
    for rows in ([4], [-1], [0, 99]):
        assert_refused(str(rows[-1]), function, x, b.ops.tensor(np.array(rows)))
    assert_refused("", function, b.zeros((0, 2)), b.ops.tensor(np.array([0])))
    for index in (np.ones(4, bool), np.zeros((1, 1), "int64"), np.zeros(1)):
        assert_refused("int64", function, x, b.ops.tensor(index))


@judges("ops.take_rows")
def take_refuses_an_index_out_of_range(b: Backend) -> None:
    check_index_errors(b, b.ops.take_rows)


def put(x: np.ndarray, index: np.ndarray, values: np.ndarray) -> np.ndarray:
    changed = x.copy()
    changed[index] = values
    return changed


@judges("ops.put_rows")
def replaces_rows_in_a_copy(b: Backend) -> None:
    for rows in ([3, 0], [1], []):
        index = np.array(rows, "int64")
        for row_shape in ((), (3,), (2, 2)):
            for dtype in ("float32", "float64", "int64"):
                x = uniform((4, *row_shape), dtype, 0, 9)
                values = uniform((len(rows), *row_shape), dtype, 10, 19, seed=1)
                assert_values(b, b.ops.put_rows, put, x, index, values)
            assert_gradient(
                b,
                lambda x, v, index=index: b.ops.put_rows(x, b.ops.tensor(index), v),
                lambda x, v, index=index: put(x, index, v),
                uniform((4, *row_shape)),
                uniform((len(rows), *row_shape), seed=1),
            )
    x = b.zeros((4, 2))
    b.ops.put_rows(x, b.ops.tensor(np.array([1])), b.full((1, 2), 5.0))
    assert_equal(b.ops.to_numpy(x), np.zeros((4, 2), "float32"))


@judges("ops.put_largest")
def keeps_the_largest_of_all_values_of_an_index(b: Backend) -> None:
    index = np.array([3, 0, 3, 3, 1], "int64")
    for dtype in ("float32", "float64", "int64"):
        x, values = uniform((4,), dtype, 0, 9), uniform((5,), dtype, 0, 19, seed=1)
        values[2] = 20  # neither the first nor the last of its index
        wanted = x.copy()
        np.maximum.at(wanted, index, values)
        changed = b.ops.tensor(x)
        found = b.ops.put_largest(changed, b.ops.tensor(index), b.ops.tensor(values))
        assert_equal(b.ops.to_numpy(found), wanted)
        assert_equal(b.ops.to_numpy(changed), x)
    none = b.ops.put_largest(b.zeros((2,)), b.ops.tensor(index[:0]), b.zeros((0,)))
    assert_equal(b.ops.to_numpy(none), np.zeros(2, "float32"))
    bad = b.ops.tensor(np.array([1, np.nan, 2], "float32"))
    spoiled = b.ops.put_largest(b.zeros((2,)), b.ops.tensor(np.array([0, 0, 1])), bad)
    assert_equal(b.ops.to_numpy(spoiled), np.array([np.nan, 2], "float32"))
    for values in (b.zeros((4,)), b.zeros((5,), "float64")):
        assert_refused("(5,)", b.ops.put_largest, b.zeros((4,)), b.ops.tensor(index), values)


@judges("ops.repeated")
def repeats_each_position_as_often_as_told(b: Backend) -> None:
    for counts in ([2, 0, 3], [0, 0], [], [1, 1]):
        array = np.array(counts, "int64")
        found = b.ops.to_numpy(b.ops.repeated(array, "cpu"))
        assert_equal(found, np.repeat(np.arange(len(array)), array))


@judges("ops.add_rows_")
def adds_rows_in_place_also_those_that_repeat(b: Backend) -> None:
    for dtype, row_shape, num_rows in itertools.product(FLOATS, ((), (3,), (2, 2)), (4, 99)):
        for rows in ([3, 0, 3, 3, 1], [2], []):
            index = np.array(rows, "int64")
            x = uniform((num_rows, *row_shape), dtype)
            values = uniform((len(rows), *row_shape), dtype, seed=1)
            changed, wanted = b.ops.tensor(x), x.copy()
            for _ in range(2):
                b.ops.add_rows_(changed, b.ops.tensor(index), b.ops.tensor(values))
                np.add.at(wanted, index, values)
            assert_equal(b.ops.to_numpy(changed), wanted, SUM_TOLERANCE[dtype])


def refuses_rows_and_values_that_do_not_fit(name: str, b: Backend) -> None:
    function = getattr(b.ops, name)
    check_index_errors(b, lambda x, i: function(x, i, b.zeros((i.shape[0], 2))))
    x, index = b.zeros((4, 2)), b.ops.tensor(np.array([1, 2]))
    for values in (b.zeros((1, 2)), b.zeros((2,)), b.zeros((2, 2), "float64")):
        assert_refused("(2, 2)", function, x, index, values)
    assert_equal(b.ops.to_numpy(x), np.zeros((4, 2), "float32"))


for name in ("put_rows", "add_rows_"):
    run = partial(refuses_rows_and_values_that_do_not_fit, name)
    CHECKS.append(Check(f"ops.{name}", "refuses_rows_and_values_that_do_not_fit", run))


@judges("ops.take_at")
def takes_rows_in_the_order_of_their_places(b: Backend) -> None:
    orders = ((0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2))
    # Of 50 some rows more than once.
    for dtype, order, ndim, count in itertools.product(
        ("float32", "float64", "int64"), orders, (1, 2, 3, 4), (0, 1, 50)
    ):
        x = uniform((2, 3, 4, 5), dtype, -9, 9)
        permuted, array = b.ops.tensor(x).permute(*order), x.transpose(order)
        places = [
            uniform((count,), "int64", 0, size, seed=dim)
            for dim, size in enumerate(array.shape[:ndim])
        ]
        assert_equal(b.ops.to_numpy(b.ops.take_at(permuted, places)), array[tuple(places)])


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
        assert_refused(text, b.ops.take_at, x, places)


@judges("ops.cells")
def column_and_row_of_each_cell(b: Backend) -> None:
    for height, width in ((1, 1), (2, 3), (7, 1), (1, 4), (20, 12), (0, 3), (2, 0)):
        cells = [(column, row) for row in range(height) for column in range(width)]
        for dtype in FLOATS:
            found = b.ops.cells(height, width, b.zeros((2,), dtype))
            assert b.ops.device_of(found) == "cpu"
            wanted = np.array(cells, dtype).reshape(1, 1, height, width, 2)
            assert_equal(b.ops.to_numpy(found), wanted)
    half = b.ops.tensor(uniform((2, 5, 3, 4), "float32"))[:, :, :2]
    found = b.ops.cells(*half.shape[2:], half)
    assert tuple(found.shape) == (1, 1, 2, 4, 2)
    assert_equal(b.ops.to_numpy(found + 0.5)[0, 0, 1, 3], np.array([3.5, 1.5], "float32"))
