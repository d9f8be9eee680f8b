"""Checks of `contract.Tensor`: operators and methods of the frameworks' own tensors."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.judging import (
    CHECKS,
    CLEAR_ERROR,
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

PAIRS = (
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((), (2,)),
    ((), ()),
    ((0, 1), (1, 3)),
    ((0, 3), (0, 3)),
)
NUMBERS = (3, 0.5, -2.0)


def with_number(function: Any, reference: Any, number: float, b: Backend) -> None:
    for shape in SHAPES:
        for dtype in ("float32", "float64"):
            assert_values(
                b,
                lambda x: function(x, number),
                lambda x: np.asarray(reference(x, number)).astype(x.dtype),
                uniform(shape, dtype, 0.5, 2.0),
            )
        assert_gradient(
            b,
            lambda x: function(x, number),
            lambda x: reference(x, number),
            uniform(shape, low=0.5, high=2.0),
        )


def check_arithmetic(name: str, reference: Any, b: Backend) -> None:
    function = getattr(b.tensor, name)
    for number in NUMBERS:
        with_number(function, reference, number, b)
    for left, right in PAIRS:
        for dtype in ("float32", "float64"):
            x, y = uniform(left, dtype), uniform(right, dtype, 0.5, 2.0, seed=1)
            assert_values(b, function, reference, x, y)
        x, y = uniform(left), uniform(right, low=0.5, high=2.0, seed=1)
        assert_gradient(b, function, reference, x, y)


def check_reflected(name: str, reference: Any, b: Backend) -> None:
    for number in NUMBERS:
        with_number(getattr(b.tensor, name), lambda x, n: reference(n, x), number, b)


def check_comparison(name: str, reference: Any, b: Backend) -> None:
    function = getattr(b.tensor, name)
    for dtype in ("float32", "float64", "int64", "uint8"):
        for left, right in PAIRS:
            x, y = uniform(left, dtype, 0, 4), uniform(right, dtype, 0, 4, seed=1)
            assert_values(b, function, reference, x, y)
        x = np.array([0, 1, 2, 3], dtype)
        assert_values(b, function, reference, x, x[::-1])
        assert_values(b, function, reference, x, x)
        for number in (2, 1.5):
            assert_values(
                b,
                lambda x, number=number: function(x, number),
                lambda x, number=number: reference(x, number),
                x,
            )
    # float64 has no place for the last one.
    large = np.array([2**53 - 1, 2**53, 2**53 + 1])
    assert_values(b, lambda x: function(x, 2**53), lambda x: reference(x, 2**53), large)
    nan = np.array([np.nan, 1.0])
    assert_values(b, function, reference, nan, nan[::-1])


for op in ("add", "sub", "mul", "truediv"):
    meaning = getattr(operator, op)
    CHECKS.append(
        Check(f"Tensor.__{op}__", "values", partial(check_arithmetic, f"__{op}__", meaning))
    )
    CHECKS.append(
        Check(f"Tensor.__r{op}__", "values", partial(check_reflected, f"__r{op}__", meaning))
    )
for op in ("lt", "le", "gt", "ge"):
    meaning = getattr(operator, op)
    CHECKS.append(
        Check(f"Tensor.__{op}__", "values", partial(check_comparison, f"__{op}__", meaning))
    )


@judges("Tensor.__pow__")
def raises_to_a_number(b: Backend) -> None:
    for exponent in (2, 0.5, -1.0, 3):
        with_number(b.tensor.__pow__, np.power, exponent, b)
    negative = np.array([-2.0, 0.0, 3.0])
    assert_values(b, lambda x: b.tensor.__pow__(x, 2), np.square, negative)
    assert_gradient(b, lambda x: b.tensor.__pow__(x, 2), np.square, negative)


@judges("Tensor.__neg__")
def changes_the_sign(b: Backend) -> None:
    for shape in SHAPES:
        assert_values(b, b.tensor.__neg__, np.negative, uniform(shape, "float32"))
        assert_gradient(b, b.tensor.__neg__, np.negative, uniform(shape))


INDICES = (
    0,
    -1,
    slice(1, None),
    slice(0, 0),
    slice(None, None, 2),
    (0, 1, 2),
    (Ellipsis, 0),
    (Ellipsis, slice(1, 3)),
    (slice(None), -1),
    (1, Ellipsis, slice(None, 2)),
    (slice(0, 9), slice(None), slice(2, 4)),
)


@judges("Tensor.__getitem__")
def integers_slices_and_ellipsis(b: Backend) -> None:
    for index in INDICES:
        for dtype in ("float32", "int64", "bool"):
            x = uniform((2, 3, 4), dtype, 0, 9)
            assert_values(
                b, lambda x, i=index: b.tensor.__getitem__(x, i), lambda x, i=index: x[i], x
            )
        assert_gradient(
            b,
            lambda x, i=index: b.tensor.__getitem__(x, i),
            lambda x, i=index: x[i],
            uniform((2, 3, 4)),
        )
    assert_raises(CLEAR_ERROR, lambda: b.tensor.__getitem__(b.zeros((2, 3)), 2))


@judges("Tensor.reshape")
def keeps_the_order_of_elements(b: Backend) -> None:
    for shape, target in (
        ((2, 6), (3, 4)),
        ((2, 6), (-1,)),
        ((2, 6), (4, -1)),
        ((), (1, 1)),
        ((0, 4), (-1, 4)),
        ((0, 4), (0, 2, 2)),
    ):
        assert_values(
            b,
            lambda x, target=target: b.tensor.reshape(x, *target),
            lambda x, target=target: x.reshape(target),
            uniform(shape, "float32"),
        )
        assert_gradient(
            b,
            lambda x, target=target: b.tensor.reshape(x, *target),
            lambda x, target=target: x.reshape(target),
            uniform(shape),
        )
    transposed = uniform((2, 3))
    assert_values(
        b, lambda x: b.tensor.reshape(x.permute(1, 0), 6), lambda x: x.T.reshape(6), transposed
    )
    assert_raises(CLEAR_ERROR, lambda: b.tensor.reshape(b.zeros((2, 3)), 4, 2))


@judges("Tensor.permute")
def reorders_dimensions(b: Backend) -> None:
    for shape, dims in (
        ((2, 3), (1, 0)),
        ((2, 3, 4), (2, 0, 1)),
        ((2, 3, 4), (0, -1, 1)),
        ((0, 4), (1, 0)),
    ):
        assert_values(
            b,
            lambda x, dims=dims: b.tensor.permute(x, *dims),
            lambda x, dims=dims: x.transpose(dims),
            uniform(shape, "float32"),
        )
        assert_gradient(
            b,
            lambda x, dims=dims: b.tensor.permute(x, *dims),
            lambda x, dims=dims: x.transpose(dims),
            uniform(shape),
        )


@judges("Tensor.detach")
def the_same_values(b: Backend) -> None:
    detached = b.tensor.detach(b.variable(np.array([3.0, 4.0])))
    assert not detached.requires_grad
    assert_equal(b.ops.to_numpy(detached), np.array([3.0, 4.0]))


@judges("Tensor.detach", trains=True)
def values_without_gradient(b: Backend) -> None:
    x = b.variable(np.array([3.0, 4.0]))
    detached = b.tensor.detach(x)
    (gradient,) = b.autograd.gradients(b.ops.sum(x * detached), [x])
    assert_equal(b.ops.to_numpy(gradient), np.array([3.0, 4.0]))


@judges("Tensor.shape")
def equals_a_tuple_of_integers(b: Backend) -> None:
    for shape in SHAPES:
        found = b.tensor.shape(b.zeros(shape))
        assert found == shape
        assert tuple(found) == shape
        assert all(type(size) is int for size in found)


@judges("Tensor.ndim")
def counts_dimensions(b: Backend) -> None:
    for shape in SHAPES:
        assert b.tensor.ndim(b.zeros(shape)) == len(shape)


@judges("Tensor.requires_grad")
def follows_from_the_inputs(b: Backend) -> None:
    constant, variable = b.zeros((2,)), b.variable(np.zeros(2, "float32"))
    assert b.tensor.requires_grad(constant) is False
    assert b.tensor.requires_grad(variable) is b.trains
    assert b.tensor.requires_grad(constant + variable) is b.trains
    assert b.tensor.requires_grad(constant + constant) is False


@judges("Tensor.grad")
def is_none_of_a_constant(b: Backend) -> None:
    assert b.tensor.grad(b.zeros((2,)) * 2.0) is None


@judges("Tensor.grad", trains=True)
def is_none_before_and_accumulates_after(b: Backend) -> None:
    module = b.nn.Conv2d(1, 1, 1, bias=False)
    ((_, weight),) = b.nn.named_parameters(module)
    assert b.tensor.grad(weight) is None
    images = b.full((1, 1, 2, 2), 3.0)
    for repeats in (1, 2):
        run_backward(b, module, images)
        assert_equal(
            b.ops.to_numpy(b.tensor.grad(weight)), np.full((1, 1, 1, 1), 12.0 * repeats, "float32")
        )


def run_backward(b: Backend, module: Any, images: Any) -> None:
    """Run the backward pass of the sum of the module's output."""
    from contextlib import nullcontext
    from types import SimpleNamespace

    b.autograd.value_and_backward(
        module,
        lambda predictions, _: SimpleNamespace(total=b.ops.sum(predictions)),
        images,
        None,
        lambda name: nullcontext(),
    )
