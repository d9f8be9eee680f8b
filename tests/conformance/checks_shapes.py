"""Checks of `contract.Ops`: reductions, joining, and rows by index."""

from __future__ import annotations

import numpy as np

from tests.conformance.judging import (
    CLEAR_ERROR,
    Backend,
    assert_equal,
    assert_gradient,
    assert_raises,
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


def check_reduction(b: Backend, function, reference) -> None:
    for dtype in ("float32", "float64"):
        for shape in WHOLE:
            x = uniform(shape, dtype)
            assert_values(b, function, reference, x, tolerance=SUM_TOLERANCE[dtype])
        for shape, dim in REDUCED:
            for keepdim in (False, True):
                assert_values(
                    b,
                    lambda x, dim=dim, keepdim=keepdim: function(x, dim, keepdim),
                    lambda x, dim=dim, keepdim=keepdim: reference(x, axis=dim, keepdims=keepdim),
                    uniform(shape, dtype),
                    tolerance=SUM_TOLERANCE[dtype],
                )


def check_reduction_gradient(b: Backend, function, reference) -> None:
    for shape in WHOLE:
        assert_gradient(b, function, reference, uniform(shape))
    for shape, dim in REDUCED:
        assert_gradient(
            b,
            lambda x, dim=dim: function(x, dim, True),
            lambda x, dim=dim: reference(x, axis=dim, keepdims=True),
            uniform(shape),
        )


@judges("ops.sum")
def sums_all_or_along_a_dimension(b: Backend) -> None:
    check_reduction(b, b.ops.sum, np.sum)
    check_reduction_gradient(b, b.ops.sum, np.sum)


@judges("ops.sum")
def sum_of_nothing_is_zero(b: Backend) -> None:
    for shape, dim in NOTHING_TO_REDUCE:
        assert_values(b, b.ops.sum, np.sum, np.zeros(shape))
        assert_values(
            b, lambda x, dim=dim: b.ops.sum(x, dim), lambda x, dim=dim: x.sum(dim), np.zeros(shape)
        )


@judges("ops.mean")
def averages_all_or_along_a_dimension(b: Backend) -> None:
    check_reduction(b, b.ops.mean, np.mean)
    check_reduction_gradient(b, b.ops.mean, np.mean)


@judges("ops.mean")
def mean_of_nothing_is_nan(b: Backend) -> None:
    for shape, dim in NOTHING_TO_REDUCE:
        for dtype in ("float32", "float64"):
            whole = b.ops.mean(b.zeros(shape, dtype))
            assert_equal(b.ops.to_numpy(whole), np.array(np.nan, dtype))
            for keepdim in (False, True):
                found = b.ops.mean(b.zeros(shape, dtype), dim, keepdim)
                wanted = np.sum(np.zeros(shape, dtype), dim, keepdims=keepdim) + np.nan
                assert_equal(b.ops.to_numpy(found), wanted.astype(dtype))


@judges("ops.amax")
def largest_along_a_dimension(b: Backend) -> None:
    for shape, dim in REDUCED:
        for dtype in ("float32", "float64"):
            assert_values(
                b,
                lambda x, dim=dim: b.ops.amax(x, dim),
                lambda x, dim=dim: np.max(x, axis=dim),
                uniform(shape, dtype),
            )
        assert_gradient(
            b,
            lambda x, dim=dim: b.ops.amax(x, dim),
            lambda x, dim=dim: np.max(x, axis=dim),
            uniform(shape),
        )


@judges("ops.amax")
def largest_beside_nan_is_nan(b: Backend) -> None:
    x = np.full((4, 3), [1.0, 3.0, 2.0])
    x[[0, 1, 2], [0, 1, 2]] = np.nan
    for dtype in ("float32", "float64"):
        for dim in (0, 1, -1):
            assert_values(
                b,
                lambda x, dim=dim: b.ops.amax(x, dim),
                lambda x, dim=dim: np.max(x, axis=dim),
                x.astype(dtype),
            )


@judges("ops.amax")
def largest_of_nothing_is_an_error(b: Backend) -> None:
    for shape, dim in NOTHING_TO_REDUCE:
        x = b.zeros(shape)
        assert_raises(ValueError, lambda x=x, dim=dim: b.ops.amax(x, dim), str(shape))
    assert_raises(CLEAR_ERROR, lambda: b.ops.amax(b.zeros(()), 0))


JOINED = (
    (((2, 3), (2, 3)), 0),
    (((2, 3), (2, 3)), -1),
    (((2, 3), (2, 3), (2, 3)), 1),
    (((0, 3), (0, 3)), 0),
    (((0, 3), (0, 3)), 1),
    (((2, 0), (2, 0)), 1),
    (((4,),), 0),
)


@judges("ops.cat")
def joins_along_a_dimension(b: Backend) -> None:
    for shapes, dim in (*JOINED, (((2, 3), (1, 3), (0, 3)), 0), (((2, 0), (2, 4)), 1)):
        check_joining(b, b.ops.cat, np.concatenate, shapes, dim)


@judges("ops.stack")
def joins_along_a_new_dimension(b: Backend) -> None:
    for shapes, dim in (*JOINED, (((2, 3), (2, 3)), 2), (((), ()), 0)):
        check_joining(b, b.ops.stack, np.stack, shapes, dim)


def check_joining(b: Backend, function, reference, shapes, dim: int) -> None:
    for dtype in ("float32", "float64", "int64", "uint8", "bool"):
        arrays = [uniform(shape, dtype, 0, 9, seed) for seed, shape in enumerate(shapes)]
        assert_values(b, lambda *x: function(x, dim), lambda *x: reference(x, axis=dim), *arrays)
    arrays = [uniform(shape, seed=seed) for seed, shape in enumerate(shapes)]
    assert_gradient(b, lambda *x: function(x, dim), lambda *x: reference(x, axis=dim), *arrays)


def check_joining_errors(b: Backend, function) -> None:
    x = b.zeros((2, 3))
    assert_raises(ValueError, lambda: function([]), "none")
    assert_raises(ValueError, lambda: function([x, b.zeros((2, 3), "float64")]), "float64")
    assert_raises(CLEAR_ERROR, lambda: function([x, b.zeros((2, 4))]))


def check_joining_with_itself(b: Backend, function, reference) -> None:
    for shape in ((2, 3), (0, 3), (2, 0)):
        for dim in (0, 1, -1):
            assert_gradient(
                b,
                lambda x, dim=dim: function([x, x], dim),
                lambda x, dim=dim: reference([x, x], axis=dim),
                uniform(shape),
            )


@judges("ops.cat")
def joins_a_tensor_with_itself(b: Backend) -> None:
    check_joining_with_itself(b, b.ops.cat, np.concatenate)


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


@judges("ops.stack")
def stacks_a_tensor_on_itself(b: Backend) -> None:
    check_joining_with_itself(b, b.ops.stack, np.stack)


@judges("ops.cat")
def cat_refuses_nothing_and_two_dtypes(b: Backend) -> None:
    check_joining_errors(b, b.ops.cat)


@judges("ops.stack")
def stack_refuses_nothing_and_two_dtypes(b: Backend) -> None:
    check_joining_errors(b, b.ops.stack)


INDICES = ([0, 2, 2], [3], [], [3, 2, 1, 0])


@judges("ops.take_rows")
def takes_rows_in_the_order_given(b: Backend) -> None:
    for rows in INDICES:
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


def check_index_errors(b: Backend, function) -> None:
    """Require that function(x, index) refuses rows outside x and what is not a row index."""
    x = b.zeros((4, 2))
    for rows in ([4], [-1], [0, 99]):
        index = b.ops.tensor(np.array(rows))
        assert_raises(ValueError, lambda index=index: function(x, index), str(rows[-1]))
    nothing = b.zeros((0, 2))
    assert_raises(ValueError, lambda: function(nothing, b.ops.tensor(np.array([0]))))
    for index in (np.ones(4, bool), np.zeros((1, 1), "int64"), np.zeros(1)):
        assert_raises(ValueError, lambda index=index: function(x, b.ops.tensor(index)), "int64")


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


@judges("ops.put_rows")
def leaves_the_original_as_it_was(b: Backend) -> None:
    x = b.zeros((4, 2))
    b.ops.put_rows(x, b.ops.tensor(np.array([1])), b.full((1, 2), 5.0))
    assert_equal(b.ops.to_numpy(x), np.zeros((4, 2), "float32"))


@judges("ops.add_at_")
def adds_to_a_part_in_place(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        x = uniform((2, 3, 4, 5), dtype)
        for index in (
            (1,),
            (0, slice(1, 3)),
            (1, slice(0, 3), slice(2, 4), slice(0, 1)),
            (0, 2, 3),
        ):
            values = uniform(x[index].shape, dtype, seed=1)
            changed, wanted = b.ops.tensor(x), x.copy()
            for _ in range(2):
                b.ops.add_at_(changed, index, b.ops.tensor(values))
                wanted[index] += values
            assert_equal(b.ops.to_numpy(changed), wanted, SUM_TOLERANCE[dtype])


@judges("ops.add_at_")
def refuses_to_add_what_does_not_fit(b: Backend) -> None:
    x = b.zeros((2, 4))
    for values in (b.zeros((1,)), b.zeros((2, 2)), b.zeros((2,), "float64")):
        assert_raises(ValueError, lambda values=values: b.ops.add_at_(x, (0, slice(1, 3)), values))
    assert_equal(b.ops.to_numpy(x), np.zeros((2, 4), "float32"))


@judges("ops.put_rows")
def put_refuses_rows_and_values_that_do_not_fit(b: Backend) -> None:
    def put_zeros(x, index):
        return b.ops.put_rows(x, index, b.zeros((index.shape[0], 2)))

    check_index_errors(b, put_zeros)
    x, index = b.zeros((4, 2)), b.ops.tensor(np.array([1, 2]))
    for values in (b.zeros((1, 2)), b.zeros((2,)), b.zeros((2, 2), "float64")):
        assert_raises(ValueError, lambda values=values: b.ops.put_rows(x, index, values), "(2, 2)")
