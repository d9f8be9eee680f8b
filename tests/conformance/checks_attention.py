"""Checks of `contract.Ops`: products, softmax with its logarithm, and a leaky activation."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.conformance.judging import (
    SHAPES,
    Backend,
    assert_equal,
    assert_gradient,
    assert_raises,
    assert_values,
    judges,
    uniform,
)

INF, NAN = np.inf, np.nan
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
    ((0, 2, 3), (0, 3, 2)),
    ((2, 0, 2, 3), (2, 0, 3, 2)),
)


def leaky(x: np.ndarray, slope: float) -> np.ndarray:
    return np.where(x > 0, x, x * slope)


@judges("ops.leaky_relu")
def keeps_what_is_above_zero_and_scales_the_rest(b: Backend) -> None:
    for slope in map(float, np.array([0.1, 0.0, 1.0], "float32")):
        function = partial(b.ops.leaky_relu, slope=slope)
        for dtype in ("float32", "float64"):
            for shape in SHAPES:
                assert_values(b, function, partial(leaky, slope=slope), uniform(shape, dtype))
            points = np.array([-1e30, -1.0, 0.0, 1.0, 1e30, INF, NAN], dtype)
            assert_values(b, function, partial(leaky, slope=slope), points)
        for shape in SHAPES:
            assert_gradient(b, function, partial(leaky, slope=slope), uniform(shape))


@judges("ops.leaky_relu")
def rounds_its_slope_to_float32(b: Backend) -> None:
    x = np.array([-1.0])
    found = b.ops.to_numpy(b.ops.leaky_relu(b.ops.tensor(x), 0.1))
    assert_equal(found, -np.array([0.1], "float32").astype("float64"))


@judges("ops.leaky_relu", trains=True)
def its_gradient_at_zero_is_the_slope(b: Backend) -> None:
    for slope in map(float, np.array([0.1, 0.0], "float32")):
        x = b.variable(np.array([-1.0, 0.0, 1.0]))
        (gradient,) = b.autograd.gradients(b.ops.sum(b.ops.leaky_relu(x, slope)), [x])
        assert_equal(b.ops.to_numpy(gradient), np.array([slope, slope, 1.0]))


@judges("ops.matmul")
def multiplies_matrices_of_any_number(b: Backend) -> None:
    for left, right in PRODUCTS:
        for dtype, tolerance in PRODUCT_TOLERANCE.items():
            x, y = uniform(left, dtype), uniform(right, dtype, seed=1)
            assert_values(b, b.ops.matmul, np.matmul, x, y, tolerance=tolerance)
        assert_gradient(b, b.ops.matmul, np.matmul, uniform(left), uniform(right, seed=1))


@judges("ops.matmul")
def multiplies_permuted_matrices(b: Backend) -> None:
    x, y = uniform((2, 4, 3)), uniform((2, 5, 4), seed=1)
    assert_gradient(
        b,
        lambda x, y: b.ops.matmul(x.permute(0, 2, 1), y.permute(0, 2, 1)),
        lambda x, y: x.transpose(0, 2, 1) @ y.transpose(0, 2, 1),
        x,
        y,
    )


@judges("ops.matmul")
def an_empty_sum_of_products_is_zero(b: Backend) -> None:
    x, y = np.zeros((2, 0)), np.zeros((0, 3))
    assert_values(b, b.ops.matmul, np.matmul, x, y)
    assert_gradient(b, b.ops.matmul, np.matmul, x, y)


@judges("ops.matmul")
def refuses_other_shapes_and_two_dtypes(b: Backend) -> None:
    for left, right in (((2, 3), (2, 3)), ((3,), (3, 2)), ((2, 3, 4), (4, 2)), ((), ())):
        x, y = b.zeros(left), b.zeros(right)
        assert_raises(ValueError, lambda x=x, y=y: b.ops.matmul(x, y), str(right))
    x, y = b.zeros((2, 2)), b.zeros((2, 2), "float64")
    assert_raises(ValueError, lambda: b.ops.matmul(x, y), "float64")


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
    return x @ weight.T + bias


@judges("ops.linear")
def adds_a_bias_to_products_with_rows(b: Backend) -> None:
    for shape, out in (((2, 3), 4), ((3,), 2), ((2, 5, 40), 3), ((2, 1, 2, 3), 1), ((0, 3), 2)):
        for dtype, tolerance in PRODUCT_TOLERANCE.items():
            x, weight = uniform(shape, dtype), uniform((out, shape[-1]), dtype, seed=1)
            bias = uniform((out,), dtype, seed=2)
            assert_values(b, b.ops.linear, linear, x, weight, tolerance=tolerance)
            assert_values(b, b.ops.linear, linear, x, weight, bias, tolerance=tolerance)
        arrays = uniform(shape), uniform((out, shape[-1]), seed=1), uniform((out,), seed=2)
        assert_gradient(b, b.ops.linear, linear, *arrays)
        assert_gradient(b, b.ops.linear, linear, *arrays[:2])


@judges("ops.linear")
def refuses_what_does_not_belong_together(b: Backend) -> None:
    for shapes in (((2, 3), (3, 2)), ((2, 3), (3,)), ((2, 3), (4, 3), (3,)), ((), (2, 3))):
        tensors = [b.zeros(shape) for shape in shapes]
        assert_raises(ValueError, lambda t=tensors: b.ops.linear(*t), str(shapes[1]))
    x, weight = b.zeros((2, 3)), b.zeros((4, 3))
    assert_raises(ValueError, lambda: b.ops.linear(x, b.ops.cast(weight, "float64")), "float64")
    bias = b.zeros((4,), "float64")
    assert_raises(ValueError, lambda: b.ops.linear(x, weight, bias), "float64")


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True, initial=-INF))
    return powers / powers.sum(-1, keepdims=True)


@judges("ops.softmax")
def shares_along_the_last_dimension(b: Backend) -> None:
    for shape in ((3,), (2, 3), (2, 1, 4), (2, 3, 4, 5), (0, 3), (2, 0), (2, 0, 3)):
        for dtype in ("float32", "float64"):
            assert_values(b, b.ops.softmax, softmax, uniform(shape, dtype))
        assert_gradient(b, b.ops.softmax, softmax, uniform(shape))


@judges("ops.softmax")
def large_numbers_do_not_overflow(b: Backend) -> None:
    rows = np.array([[1000.0, 999.0, -1000.0], [-1e30, 0.0, 1e30], [-INF, 0.0, 0.0]])
    for dtype in ("float32", "float64"):
        assert_values(b, b.ops.softmax, softmax, rows.astype(dtype))


def log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(-1, keepdims=True, initial=-INF)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@judges("ops.log_softmax")
def logarithms_of_shares_along_the_last_dimension(b: Backend) -> None:
    for shape in ((3,), (2, 3), (2, 1, 4), (2, 3, 4, 5), (0, 3)):
        for dtype in ("float32", "float64"):
            assert_values(b, b.ops.log_softmax, log_softmax, uniform(shape, dtype))
        assert_gradient(b, b.ops.log_softmax, log_softmax, uniform(shape))


@judges("ops.log_softmax")
def logarithms_of_large_numbers_do_not_overflow(b: Backend) -> None:
    rows = np.array([[1000.0, 999.0, -1000.0], [-1e30, 0.0, 1e30]])
    for dtype in ("float32", "float64"):
        # Relative to the largest value: OneFlow's float32 logarithm of 1 is 1e-6.
        assert_values(b, b.ops.log_softmax, log_softmax, rows.astype(dtype))
