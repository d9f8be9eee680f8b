"""Checks of `contract.Tensor`: operators and methods of the frameworks' own tensors."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.judging import (
    CHECKS,
    CLEAR_ERROR,
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
    learn,
    uniform,
)

NUMBERS = (3, 0.5, -2.0)


def with_number(function: Any, reference: Any, number: float, b: Backend) -> None:
    def as_wanted(x: np.ndarray, number: float) -> np.ndarray:
        return np.asarray(reference(x, number)).astype(x.dtype)

    for shape in SHAPES:
        assert_op(b, function, as_wanted, shape, args=(number,), low=0.5)


def check_arithmetic(name: str, reference: Any, b: Backend) -> None:
    function = getattr(b.tensor, name)
    for number in NUMBERS:
        with_number(function, reference, number, b)
    for left, right in PAIRS:
        assert_op(b, function, reference, left, right, low=0.5)


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
            assert_values(b, function, reference, x, args=(number,))
    # float64 has no place for the last one.
    assert_values(b, function, reference, np.array([2**53 - 1, 2**53, 2**53 + 1]), args=(2**53,))
    nan = np.array([np.nan, 1.0])
    assert_values(b, function, reference, nan, nan[::-1])


for op in ("add", "sub", "mul", "truediv", "lt", "le", "gt", "ge"):
    check = check_arithmetic if op in ("add", "sub", "mul", "truediv") else check_comparison
    judged = [(f"__{op}__", check)]
    if check is check_arithmetic:
        judged.append((f"__r{op}__", check_reflected))
    for name, run in judged:
        CHECKS.append(Check(f"Tensor.{name}", "values", partial(run, name, getattr(operator, op))))


@judges("Tensor.__pow__")
def raises_to_a_number(b: Backend) -> None:
    for exponent in (2, 0.5, -1.0, 3):
        with_number(b.tensor.__pow__, np.power, exponent, b)
    negative = np.array([-2.0, 0.0, 3.0])
    assert_values(b, b.tensor.__pow__, np.power, negative, args=(2,))
    assert_gradient(b, b.tensor.__pow__, np.power, negative, args=(2,))
    extreme = np.array([-np.inf, -2.0, 0.0, 4.0, np.inf])
    for exponent in (2, 3, -1.0):
        assert_values(b, b.tensor.__pow__, np.power, extreme, args=(exponent,))
    for exponent in (0.5, -0.5):
        assert_values(b, b.tensor.__pow__, np.power, extreme[1:], args=(exponent,))


@judges("Tensor.__neg__")
def changes_the_sign(b: Backend) -> None:
    for shape in SHAPES:
        assert_op(b, b.tensor.__neg__, np.negative, shape)


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
        for dtype in ("int64", "bool"):
            x = uniform((2, 3, 4), dtype, 0, 9)
            assert_values(b, b.tensor.__getitem__, operator.getitem, x, args=(index,))
        assert_op(b, b.tensor.__getitem__, operator.getitem, (2, 3, 4), args=(index,))
    assert_refused("", b.tensor.__getitem__, b.zeros((2, 3)), 2, errors=CLEAR_ERROR)


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
        assert_op(b, b.tensor.reshape, lambda x, *target: x.reshape(target), shape, args=target)
    assert_values(
        b, lambda x: b.tensor.reshape(x.permute(1, 0), 6), lambda x: x.T.reshape(6), uniform((2, 3))
    )
    assert_refused("", b.tensor.reshape, b.zeros((2, 3)), 4, 2, errors=CLEAR_ERROR)


@judges("Tensor.permute")
def reorders_dimensions(b: Backend) -> None:
    for shape, dims in (
        ((2, 3), (1, 0)),
        ((2, 3, 4), (2, 0, 1)),
        ((2, 3, 4), (0, -1, 1)),
        ((0, 4), (1, 0)),
    ):
        assert_op(b, b.tensor.permute, lambda x, *dims: x.transpose(dims), shape, args=dims)


@judges("Tensor.detach")
def the_same_values(b: Backend) -> None:
    detached = b.tensor.detach(b.variable(np.array([3.0, 4.0])))
    assert not detached.requires_grad
    assert_equal(b.ops.to_numpy(detached), np.array([3.0, 4.0]))


@judges("Tensor.detach", trains=True)
def values_without_gradient(b: Backend) -> None:
    x = b.variable(np.array([3.0, 4.0]))
    (gradient,) = b.autograd.gradients(b.ops.sum(x * b.tensor.detach(x)), [x])
    assert_equal(b.ops.to_numpy(gradient), np.array([3.0, 4.0]))


@judges("Tensor.shape")
@judges("Tensor.ndim")
def a_tuple_of_integers_and_their_number(b: Backend) -> None:
    for shape in SHAPES:
        found = b.tensor.shape(b.zeros(shape))
        assert found == shape and tuple(found) == shape
        assert all(type(size) is int for size in found)
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
    for repeats in (1, 2):
        learn(b, module, b.full((1, 1, 2, 2), 3.0), b.full((1, 1, 2, 2), 1.0))
        wanted = np.full((1, 1, 1, 1), 12.0 * repeats, "float32")
        assert_equal(b.ops.to_numpy(b.tensor.grad(weight)), wanted)
