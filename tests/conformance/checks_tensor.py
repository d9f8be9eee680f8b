"""Checks of `contract.Tensor`, and of `contract.Ops`: NumPy boundary, devices and creation."""

import operator
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.judging import (
    CHECKS,
    CLEAR_ERROR,
    DTYPES,
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


@judges("ops.tensor")
@judges("ops.dtype_of")
def keeps_shape_dtype_and_values(b: Backend) -> None:
    for dtype in DTYPES:
        for shape in SHAPES:
            array = uniform(shape, dtype, 0, 200)
            assert_equal(b.ops.to_numpy(b.ops.tensor(array)), array)
            assert b.ops.dtype_of(b.ops.tensor(array)) == dtype


@judges("ops.tensor")
def reads_any_memory_layout(b: Backend) -> None:
    array = uniform((4, 6))
    big_endian = array.astype(">f8")
    for view in (array.T, array[::-1], array[:, ::-2], array[1:3, 2:4], big_endian):
        assert_equal(b.ops.to_numpy(b.ops.tensor(view)), np.array(view, "float64"))
    read_only = array.copy()
    read_only.setflags(write=False)
    assert_equal(b.ops.to_numpy(b.ops.tensor(read_only)), array)


@judges("ops.tensor")
def does_not_see_later_writes_to_the_array(b: Backend) -> None:
    # Several times over: with aliasing and a queue of ops it is a race.
    for size in (1, 1000, 100_000):
        array = np.ones(size)
        x = b.ops.tensor(array)
        doubled = x * 2.0
        array[...] = 5.0
        assert_equal(b.ops.to_numpy(x), np.ones(size))
        assert_equal(b.ops.to_numpy(doubled), np.full(size, 2.0))


@judges("ops.tensor")
def refuses_other_dtypes_and_absent_devices(b: Backend) -> None:
    for dtype in ("int32", "float16", "complex64", "uint16"):
        assert_refused(dtype, b.ops.tensor, np.zeros(2, dtype))
    assert_refused("str", b.ops.tensor, np.array(["a"]))
    assert_refused("cuda:99", b.ops.tensor, np.zeros(2), "cuda:99")


@judges("ops.to_numpy")
def gives_a_copy_that_shares_nothing(b: Backend) -> None:
    x = b.ops.tensor(np.ones((2, 3)))
    array = b.ops.to_numpy(x)
    array[...] = 7.0
    assert_equal(b.ops.to_numpy(x), np.ones((2, 3)))


@judges("ops.to_numpy")
def is_complete_and_detached(b: Backend) -> None:
    x = b.variable(np.ones((200, 200)))
    y = x
    for _ in range(50):
        y = y + x * 1.0
    found = b.ops.to_numpy(y)
    assert type(found) is np.ndarray
    assert_equal(found, np.full((200, 200), 51.0))
    assert_equal(b.ops.to_numpy(x.permute(1, 0)[3]), np.ones(200))


@judges("ops.to_numpy")
def reads_any_view_of_a_tensor(b: Backend) -> None:
    for dtype in DTYPES:
        array = uniform((2, 3, 4), dtype, 0, 200)
        x = b.ops.tensor(array)
        for order in ((1, 0, 2), (2, 1, 0)):
            assert_equal(b.ops.to_numpy(x.permute(*order)), array.transpose(order))
        for part in (np.s_[1], np.s_[..., ::2], np.s_[:, 1], np.s_[1, 2, 3], np.s_[:, 3:]):
            assert_equal(b.ops.to_numpy(x[part]), np.asarray(array[part]))


@judges("ops.to_numpy", trains=True)
def is_not_reached_by_later_updates(b: Backend) -> None:
    # Several times over: with aliasing and a queue of ops it is a race.
    for size in (1, 1000, 100_000):
        x = b.ops.tensor(np.ones(size))
        zeros = b.zeros((size,), "float64")
        array = b.ops.to_numpy(x)
        b.optim.ema_update_([x], [zeros], 0.5)
        assert_equal(array, np.ones(size))
        assert_equal(b.ops.to_numpy(x), np.full(size, 0.5))


@judges("ops.device_of")
def the_processor_is_called_cpu(b: Backend) -> None:
    assert b.ops.device_of(b.zeros((2,))) == "cpu"
    assert b.ops.device_of(b.variable(np.ones(2)) * 2.0) == "cpu"


@judges("ops.cast")
def converts_as_numpy_does(b: Backend) -> None:
    array = np.array([0.0, 0.2, 1.0, 1.7, 2.5, 200.9])
    for source in DTYPES:
        for target in DTYPES:
            for x in (array.astype(source), array[:0].astype(source), array[3, ...].astype(source)):
                x = np.asarray(x)
                found = b.ops.cast(b.ops.tensor(x), target)
                assert_equal(b.ops.to_numpy(found), x.astype(target))
    negative = b.ops.cast(b.ops.tensor(np.array([-1.7, -0.2])), "int64")
    assert_equal(b.ops.to_numpy(negative), np.array([-1, 0]))


@judges("ops.cast", trains=True)
def gradient_flows_through_a_cast(b: Backend) -> None:
    x = b.variable(np.array([1.0, 2.0], "float32"))
    total = b.ops.sum(b.ops.cast(x, "float64") * b.ops.tensor(np.array([3.0, 4.0])))
    (gradient,) = b.autograd.gradients(total, [x])
    assert_equal(b.ops.to_numpy(gradient), np.array([3.0, 4.0], "float32"))


@judges("ops.cast")
def refuses_an_unknown_dtype(b: Backend) -> None:
    assert_refused("'float'", b.ops.cast, b.zeros((2,)), "float")


def check_creation(name: str, value: float, args: tuple[float, ...], b: Backend) -> None:
    function = getattr(b.ops, name)
    for shape in SHAPES:
        found = b.ops.to_numpy(function(shape, *args))
        assert_equal(found, np.full(shape, value, "float32"))
        for dtype in DTYPES:
            found = b.ops.to_numpy(function(list(shape), *args, dtype, "cpu"))
            assert_equal(found, np.full(shape, value, dtype))


def check_creation_errors(name: str, value: float, args: tuple[float, ...], b: Backend) -> None:
    function = getattr(b.ops, name)
    assert_refused("int32", function, (2,), *args, "int32")
    assert_refused("cuda:99", function, (2,), *args, "float32", "cuda:99")
    for shape in ((-1,), (2, -3), (-1, 0), (0, -1)):
        assert_refused(str(shape), function, shape, *args)


for name, value, args in (("zeros", 0, ()), ("full", 0.1, (0.1,))):
    for label, run in (
        ("of every shape and dtype", check_creation),
        ("refuses what is not there", check_creation_errors),
    ):
        CHECKS.append(Check(f"ops.{name}", label, partial(run, name, value, args)))


@judges("ops.arange")
def counts_in_any_dtype(b: Backend) -> None:
    for count in (0, 1, 5):
        assert_equal(b.ops.to_numpy(b.ops.arange(count)), np.arange(count))
        for dtype in ("int64", "float32", "float64"):
            found = b.ops.to_numpy(b.ops.arange(count, dtype, "cpu"))
            assert_equal(found, np.arange(count).astype(dtype))
    assert_refused("-1", b.ops.arange, -1)
    assert_refused("int32", b.ops.arange, 2, "int32")


@judges("ops.to_numpy_later")
def gives_what_is_there(b: Backend) -> None:
    for dtype in DTYPES:
        for shape in ((2, 3), (), (0, 3)):
            array = uniform(shape, dtype, 0, 200)
            assert_equal(b.ops.to_numpy_later(b.ops.tensor(array))(), array)
    array = uniform((4, 5, 6))
    assert_equal(
        b.ops.to_numpy_later(b.ops.tensor(array).permute(2, 0, 1))(), array.transpose(2, 0, 1)
    )


@judges("ops.to_numpy_later", trains=True)
def gives_what_was_there_when_it_began(b: Backend) -> None:
    x = b.autograd.variable(np.ones((1000,)))
    read = b.ops.to_numpy_later(x)
    b.optim.ema_update_([x.detach()], [b.full((1000,), 3.0, "float64")], 0.5)
    assert_equal(read(), np.ones(1000))
    assert_equal(b.ops.to_numpy_later(x)(), np.full(1000, 2.0))
