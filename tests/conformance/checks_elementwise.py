"""Checks of `contract.Ops`: element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tests.conformance.judging import (
    CHECKS,
    SHAPES,
    Backend,
    Check,
    assert_equal,
    assert_gradient,
    assert_raises,
    assert_values,
    judges,
    uniform,
)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


class Unary(NamedTuple):
    """An op of one tensor, its reference, where it is smooth, and points that matter."""

    name: str
    reference: Callable[[Any], Any]
    low: float
    high: float
    points: tuple[float, ...]


INF, NAN = np.inf, np.nan
UNARY = (
    Unary("atan", np.arctan, -3, 3, (-INF, -1e30, 0.0, 1e30, INF, NAN)),
    Unary("sigmoid", sigmoid, -3, 3, (-80.0, -20.0, 0.0, 20.0, 1000.0, NAN)),
    Unary("silu", lambda x: x * sigmoid(x), -3, 3, (-80.0, -20.0, 0.0, 20.0, 1000.0, NAN)),
)


def check_unary(unary: Unary, b: Backend) -> None:
    function = getattr(b.ops, unary.name)
    for dtype in ("float32", "float64"):
        for shape in SHAPES:
            assert_values(
                b, function, unary.reference, uniform(shape, dtype, unary.low, unary.high)
            )
        assert_values(b, function, unary.reference, np.array(unary.points, dtype))


def check_unary_gradient(unary: Unary, b: Backend) -> None:
    function = getattr(b.ops, unary.name)
    for shape in SHAPES:
        x = uniform(shape, "float64", unary.low, unary.high)
        assert_gradient(b, function, unary.reference, x)


for row in UNARY:
    CHECKS.append(Check(f"ops.{row.name}", "values", partial(check_unary, row)))
    CHECKS.append(Check(f"ops.{row.name}", "gradient", partial(check_unary_gradient, row)))


@judges("ops.clamp")
def limits_values_to_low_and_high(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        for shape in (*SHAPES, (50,)):
            for low, high in ((-1.0, 0.5), (None, 0.5), (-1.0, None), (0, 1)):
                assert_values(
                    b,
                    lambda x, low=low, high=high: b.ops.clamp(x, low, high),
                    lambda x, low=low, high=high: np.clip(x, low, high).astype(x.dtype),
                    uniform(shape, dtype),
                )


@judges("ops.clamp")
def keeps_nan(b: Backend) -> None:
    x = np.array([NAN, -INF, INF, 0.0])
    for low, high in ((-1.0, 0.5), (None, 0.5), (-1.0, None)):
        assert_values(
            b,
            lambda x, low=low, high=high: b.ops.clamp(x, low, high),
            lambda x, low=low, high=high: np.clip(x, low, high),
            x,
        )


@judges("ops.clamp")
def gradient_is_one_at_the_limits(b: Backend) -> None:
    x = b.variable(np.array([-2.0, -1.0, 0.0, 0.5, 0.6]))
    (gradient,) = b.autograd.gradients(b.ops.sum(b.ops.clamp(x, -1.0, 0.5)), [x])
    np.testing.assert_array_equal(b.ops.to_numpy(gradient), [0.0, 1.0, 1.0, 1.0, 0.0])


PAIRS = (((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((), ()), ((0, 1), (1, 3)))


def check_binary(name: str, reference: Callable[[Any, Any], Any], b: Backend) -> None:
    function = getattr(b.ops, name)
    for left, right in PAIRS:
        for dtype in ("float32", "float64"):
            assert_values(
                b, function, reference, uniform(left, dtype), uniform(right, dtype, seed=1)
            )
        assert_gradient(b, function, reference, uniform(left), uniform(right, seed=1))


def check_binary_tie(name: str, b: Backend) -> None:
    x, y = b.variable(np.ones(2)), b.variable(np.ones(2))
    gradients = b.autograd.gradients(b.ops.sum(getattr(b.ops, name)(x, y)), [x, y])
    for gradient in gradients:
        np.testing.assert_array_equal(b.ops.to_numpy(gradient), [0.5, 0.5])


def check_binary_nan(name: str, reference: Callable[[Any, Any], Any], b: Backend) -> None:
    function = getattr(b.ops, name)
    left = np.array([NAN, 1.0, NAN, 3.0, 1.0, NAN, INF, INF, NAN, -INF])
    right = np.array([2.0, NAN, NAN, 2.0, 2.0, -INF, NAN, -INF, INF, INF])
    for dtype in ("float32", "float64"):
        x, y = left.astype(dtype), right.astype(dtype)
        assert_values(b, function, reference, x, y)
        assert_values(b, function, reference, x[:, None], y)
        assert_values(b, function, reference, x[:0, None], y)
        variables = b.variable(x), b.variable(y)
        weights = np.arange(1, 11).astype(dtype)
        total = b.ops.sum(function(*variables) * b.ops.tensor(weights))
        for gradient, own, other in zip(
            b.autograd.gradients(total, variables), (x, y), (y, x), strict=True
        ):
            flows = np.isnan(own) | np.isnan(other) | (own == reference(own, other))
            assert_equal(b.ops.to_numpy(gradient), weights * flows)


for op, numpy_op in (("minimum", np.minimum), ("maximum", np.maximum)):
    CHECKS.append(Check(f"ops.{op}", "values and gradient", partial(check_binary, op, numpy_op)))
    CHECKS.append(Check(f"ops.{op}", "keeps NaN", partial(check_binary_nan, op, numpy_op)))
    CHECKS.append(Check(f"ops.{op}", "a tie shares the gradient", partial(check_binary_tie, op)))


WHERE_SHAPES = (
    ((3,), (3,), (3,)),
    ((2, 3), (3,), (2, 1)),
    ((), (2,), ()),
    ((0, 3), (3,), ()),
    ((3,), (0, 1), (1, 3)),
    ((0,), (0,), (0,)),
    ((), (), ()),
)


@judges("ops.where")
def picks_by_condition_with_broadcasting(b: Backend) -> None:
    for condition, left, right in WHERE_SHAPES:
        mask = uniform(condition) > 0
        for dtype in ("float32", "float64", "int64"):
            x, y = uniform(left, dtype, -9, 9), uniform(right, dtype, -9, 9, seed=1)
            assert_values(b, b.ops.where, np.where, mask, x, y)
        choose = partial(np.where, mask)
        assert_gradient(
            b,
            lambda x, y, mask=mask: b.ops.where(b.ops.tensor(mask), x, y),
            choose,
            uniform(left),
            uniform(right, seed=1),
        )


@judges("ops.where")
def a_number_takes_the_dtype_of_the_tensor(b: Backend) -> None:
    mask = np.array([True, False])
    for dtype in ("float32", "float64", "int64"):
        x = np.array([3, 4], dtype)
        assert_values(
            b,
            lambda m, x: b.ops.where(m, x, 7),
            lambda m, x: np.where(m, x, x.dtype.type(7)),
            mask,
            x,
        )
        assert_values(
            b,
            lambda m, x: b.ops.where(m, 7.0, x),
            lambda m, x: np.where(m, x.dtype.type(7), x),
            mask,
            x,
        )
    assert_values(
        b, lambda m: b.ops.where(m, 1, 0.5), lambda m: np.where(m, 1, 0.5).astype("float32"), mask
    )
    empty = np.zeros((0, 2), bool)
    assert_values(
        b, lambda m: b.ops.where(m, 1.0, 0.0), lambda m: np.zeros((0, 2), "float32"), empty
    )


@judges("ops.where")
def refuses_two_dtypes(b: Backend) -> None:
    mask, x = b.ops.tensor(np.ones(2, bool)), b.zeros((2,))
    assert_raises(ValueError, lambda: b.ops.where(mask, x, b.zeros((2,), "float64")), "float64")
