"""Checks of `contract.Ops`: element by element, products, and softmax with its logarithm."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.judging import (
    CHECKS,
    FLOATS,
    PAIRS,
    SHAPES,
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

INF, NAN = np.inf, np.nan


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True, initial=-INF))
    return powers / powers.sum(-1, keepdims=True)


def log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(-1, keepdims=True, initial=-INF)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


FAR = np.array([-80.0, -20.0, 0.0, 20.0, 1000.0, NAN])
ROWS = ((3,), (2, 3), (2, 1, 4), (2, 3, 4, 5), (0, 3))
LARGE_ROWS = np.array([[1000.0, 999.0, -1000.0], [-1e30, 0.0, 1e30]])
# An op of one tensor: its reference, shapes, and points that matter.
UNARY = {
    "atan": (np.arctan, SHAPES, np.array([-INF, -1e30, 0.0, 1e30, INF, NAN])),
    "sigmoid": (sigmoid, SHAPES, FAR),
    "silu": (lambda x: x * sigmoid(x), SHAPES, FAR),
    "softmax": (
        softmax, (*ROWS, (2, 0), (2, 0, 3)), np.array([*LARGE_ROWS, [-INF, 0.0, 0.0]])
    ),
    # Relative to the largest value: OneFlow's float32 logarithm of 1 is 1e-6.
    "log_softmax": (log_softmax, ROWS, LARGE_ROWS),
}  # fmt: skip


def check_unary(name: str, b: Backend) -> None:
    function, (reference, shapes, points) = getattr(b.ops, name), UNARY[name]
    for shape in shapes:
        assert_op(b, function, reference, shape)
    for dtype in FLOATS:
        assert_values(b, function, reference, points.astype(dtype))


for name in UNARY:
    CHECKS.append(Check(f"ops.{name}", "values and gradient", partial(check_unary, name)))


def leaky(x: np.ndarray, slope: float) -> np.ndarray:
    return np.where(x > 0, x, x * slope)


@judges("ops.leaky_relu")
def keeps_what_is_above_zero_and_scales_the_rest(b: Backend) -> None:
    points = np.array([-1e30, -1.0, 0.0, 1.0, 1e30, INF, NAN])
    for slope in map(float, np.array([0.1, 0.0, 1.0], "float32")):
        for shape in SHAPES:
            assert_op(b, b.ops.leaky_relu, leaky, shape, args=(slope,))
        for dtype in FLOATS:
            assert_values(b, b.ops.leaky_relu, leaky, points.astype(dtype), args=(slope,))


@judges("ops.leaky_relu")
def rounds_its_slope_to_float32(b: Backend) -> None:
    found = b.ops.to_numpy(b.ops.leaky_relu(b.ops.tensor(np.array([-1.0])), 0.1))
    assert_equal(found, -np.array([0.1], "float32").astype("float64"))


@judges("ops.leaky_relu", trains=True)
def its_gradient_at_zero_is_the_slope(b: Backend) -> None:
    for slope in map(float, np.array([0.1, 0.0], "float32")):
        x = b.variable(np.array([-1.0, 0.0, 1.0]))
        (gradient,) = b.autograd.gradients(b.ops.sum(b.ops.leaky_relu(x, slope)), [x])
        assert_equal(b.ops.to_numpy(gradient), np.array([slope, slope, 1.0]))


@judges("ops.clamp")
def limits_values_to_low_and_high_and_keeps_nan(b: Backend) -> None:
    def limited(x: np.ndarray, *limits: float | None) -> np.ndarray:
        return np.clip(x, *limits).astype(x.dtype)

    for limits in ((-1.0, 0.5), (None, 0.5), (-1.0, None), (0, 1)):
        for shape in (*SHAPES, (50,)):
            assert_op(b, b.ops.clamp, limited, shape, args=limits, gradient=False)
        assert_values(b, b.ops.clamp, limited, np.array([NAN, -INF, INF, 0.0]), args=limits)


@judges("ops.clamp")
def gradient_is_one_at_the_limits(b: Backend) -> None:
    x = b.variable(np.array([-2.0, -1.0, 0.0, 0.5, 0.6]))
    (gradient,) = b.autograd.gradients(b.ops.sum(b.ops.clamp(x, -1.0, 0.5)), [x])
    np.testing.assert_array_equal(b.ops.to_numpy(gradient), [0.0, 1.0, 1.0, 1.0, 0.0])


def check_binary(name: str, reference: Callable[[Any, Any], Any], b: Backend) -> None:
    for left, right in PAIRS:
        assert_op(b, getattr(b.ops, name), reference, left, right)


def check_binary_tie(name: str, reference: Callable[[Any, Any], Any], b: Backend) -> None:
    x, y = b.variable(np.ones(2)), b.variable(np.ones(2))
    for gradient in b.autograd.gradients(b.ops.sum(getattr(b.ops, name)(x, y)), [x, y]):
        np.testing.assert_array_equal(b.ops.to_numpy(gradient), [0.5, 0.5])


def check_binary_nan(name: str, reference: Callable[[Any, Any], Any], b: Backend) -> None:
    function = getattr(b.ops, name)
    left = np.array([NAN, 1.0, NAN, 3.0, 1.0, NAN, INF, INF, NAN, -INF])
    right = np.array([2.0, NAN, NAN, 2.0, 2.0, -INF, NAN, -INF, INF, INF])
    for dtype in FLOATS:
        x, y = left.astype(dtype), right.astype(dtype)
        for columns in (x, x[:, None], x[:0, None]):
            assert_values(b, function, reference, columns, y)
        variables = b.variable(x), b.variable(y)
        weights = np.arange(1, 11).astype(dtype)
        total = b.ops.sum(function(*variables) * b.ops.tensor(weights))
        for gradient, own, other in zip(
            b.autograd.gradients(total, variables), (x, y), (y, x), strict=True
        ):
            flows = np.isnan(own) | np.isnan(other) | (own == reference(own, other))
            assert_equal(b.ops.to_numpy(gradient), weights * flows)


for name, reference in (("minimum", np.minimum), ("maximum", np.maximum)):
    for label, run in (
        ("values and gradient", check_binary),
        ("keeps NaN", check_binary_nan),
        ("a tie shares the gradient", check_binary_tie),
    ):
        CHECKS.append(Check(f"ops.{name}", label, partial(run, name, reference)))


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
        for dtype in (*FLOATS, "int64"):
            x, y = uniform(left, dtype, -9, 9), uniform(right, dtype, -9, 9, seed=1)
            assert_values(b, b.ops.where, np.where, mask, x, y)
        assert_gradient(
            b,
            partial(b.ops.where, b.ops.tensor(mask)),
            partial(np.where, mask),
            uniform(left),
            uniform(right, seed=1),
        )


@judges("ops.where")
def a_number_takes_the_dtype_of_the_tensor(b: Backend) -> None:
    mask = np.array([True, False])
    condition = b.ops.tensor(mask)
    for dtype in (*FLOATS, "int64"):
        x = np.array([3, 4], dtype)
        seven = x.dtype.type(7)
        for found, wanted in (
            (b.ops.where(condition, b.ops.tensor(x), 7), np.where(mask, x, seven)),
            (b.ops.where(condition, 7.0, b.ops.tensor(x)), np.where(mask, seven, x)),
        ):
            assert_equal(b.ops.to_numpy(found), wanted)
    assert_equal(b.ops.to_numpy(b.ops.where(condition, 1, 0.5)), np.array([1, 0.5], "float32"))
    empty = b.ops.where(b.ops.tensor(np.zeros((0, 2), bool)), 1.0, 0.0)
    assert_equal(b.ops.to_numpy(empty), np.zeros((0, 2), "float32"))


@judges("ops.where")
def refuses_two_dtypes(b: Backend) -> None:
    mask, x = b.ops.tensor(np.ones(2, bool)), b.zeros((2,))
    assert_refused("float64", b.ops.where, mask, x, b.zeros((2,), "float64"))


# Relative to the largest value; sums of up to 40 products err by their count times rounding.
PRODUCT_TOLERANCE = {"float32": 4e-6, "float64": 1e-14}
PRODUCTS = (
    ((2, 3), (3, 4)),
    ((1, 1), (1, 1)),
    ((5, 40), (40, 2)),
    ((2, 2, 3), (2, 3, 1)),
    ((2, 3, 4, 5), (2, 3, 5, 4)),
    ((0, 3), (3, 4)),
    ((2, 3), (3, 0)),
    ((2, 0), (0, 3)),
    ((0, 2, 3), (0, 3, 2)),
    ((2, 0, 2, 3), (2, 0, 3, 2)),
)


@judges("ops.matmul")
def multiplies_matrices_of_any_number(b: Backend) -> None:
    for left, right in PRODUCTS:
        assert_op(b, b.ops.matmul, np.matmul, left, right, tolerance=PRODUCT_TOLERANCE)


@judges("ops.matmul")
def multiplies_permuted_matrices(b: Backend) -> None:
    assert_gradient(
        b,
        lambda x, y: b.ops.matmul(x.permute(0, 2, 1), y.permute(0, 2, 1)),
        lambda x, y: x.transpose(0, 2, 1) @ y.transpose(0, 2, 1),
        uniform((2, 4, 3)),
        uniform((2, 5, 4), seed=1),
    )


@judges("ops.matmul")
def refuses_other_shapes_and_two_dtypes(b: Backend) -> None:
    for left, right in (((2, 3), (2, 3)), ((3,), (3, 2)), ((2, 3, 4), (4, 2)), ((), ())):
        assert_refused(str(right), b.ops.matmul, b.zeros(left), b.zeros(right))
    assert_refused("float64", b.ops.matmul, b.zeros((2, 2)), b.zeros((2, 2), "float64"))


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
    return x @ weight.T + bias


@judges("ops.linear")
def adds_a_bias_to_products_with_rows(b: Backend) -> None:
    for shape, out in (((2, 3), 4), ((3,), 2), ((2, 5, 40), 3), ((2, 1, 2, 3), 1), ((0, 3), 2)):
        shapes = shape, (out, shape[-1]), (out,)
        for given in (shapes, shapes[:2]):
            assert_op(b, b.ops.linear, linear, *given, tolerance=PRODUCT_TOLERANCE)


@judges("ops.linear")
def refuses_what_does_not_belong_together(b: Backend) -> None:
    for shapes in (((2, 3), (3, 2)), ((2, 3), (3,)), ((2, 3), (4, 3), (3,)), ((), (2, 3))):
        assert_refused(str(shapes[1]), b.ops.linear, *map(b.zeros, shapes))
    x, weight = b.zeros((2, 3)), b.zeros((4, 3))
    assert_refused("float64", b.ops.linear, x, b.zeros((4, 3), "float64"))
    assert_refused("float64", b.ops.linear, x, weight, b.zeros((4,), "float64"))
