"""Checks of `contract.Ops`: network and loss."""

from __future__ import annotations

import numpy as np

from backend.contract import Tensor
from tests.conformance.judging import (
    Backend,
    assert_equal,
    assert_gradient,
    assert_raises,
    assert_values,
    judges,
    uniform,
)


def upsample(x: np.ndarray) -> np.ndarray:
    return x.repeat(2, axis=2).repeat(2, axis=3)


@judges("ops.upsample_nearest_2x")
def repeats_each_value_four_times(b: Backend) -> None:
    for shape in ((2, 3, 4, 5), (1, 1, 1, 1), (0, 3, 2, 2), (2, 1, 3, 2)):
        for dtype in ("float32", "float64"):
            assert_values(b, b.ops.upsample_nearest_2x, upsample, uniform(shape, dtype))
        assert_gradient(b, b.ops.upsample_nearest_2x, upsample, uniform(shape))


@judges("ops.upsample_nearest_2x")
def repeats_large_maps_and_maps_kept_channels_last(b: Backend) -> None:
    for shape in ((2, 4, 5, 3), (1, 40, 30, 2), (1, 32, 32, 4)):
        for turn in ((0, 1, 2, 3), (0, 3, 1, 2)):
            array = uniform(shape)
            x = b.variable(array)
            found = b.ops.upsample_nearest_2x(x.permute(*turn))
            assert_equal(b.ops.to_numpy(found), upsample(array.transpose(turn)))
            if not b.trains:
                continue
            batch, channels, height, width = array.transpose(turn).shape
            weights = uniform(found.shape, seed=1)
            (gradient,) = b.autograd.gradients(b.ops.sum(found * b.ops.tensor(weights)), [x])
            blocks = weights.reshape(batch, channels, height, 2, width, 2).sum((3, 5))
            assert_equal(b.ops.to_numpy(gradient), blocks.transpose(np.argsort(turn)))


def bce(logits: np.ndarray, target: np.ndarray, positive_weight: float = 1.0) -> np.ndarray:
    """Return the mean of `bce_terms`."""
    return np.asarray(bce_terms(logits, target, positive_weight).mean()).astype(logits.dtype)


def bce_terms(logits: np.ndarray, target: np.ndarray, positive_weight: float = 1.0) -> np.ndarray:
    """Return -(w t log s + (1 - t) log(1 - s)), log s = -log(1 + e^-x), without overflow."""
    log_sigmoid = -np.logaddexp(0.0, -logits)
    log_one_minus = -np.logaddexp(0.0, logits)
    terms = positive_weight * target * log_sigmoid + (1.0 - target) * log_one_minus
    return np.asarray(-terms).astype(logits.dtype)


@judges("ops.bce_with_logits")
def mean_over_all_elements(b: Backend) -> None:
    for shape in ((3,), (2, 3), (2, 3, 2, 2), ()):
        for weight in (1.0, 2.5, 0.3):
            for dtype in ("float32", "float64"):
                assert_values(
                    b,
                    lambda x, t, weight=weight: b.ops.bce_with_logits(x, t, weight),
                    lambda x, t, weight=weight: bce(x, t, weight),
                    uniform(shape, dtype, -6, 6),
                    uniform(shape, dtype, 0, 1, seed=1),
                )


@judges("ops.bce_with_logits")
def gradient_reaches_the_logits_only(b: Backend) -> None:
    target = uniform((2, 3), low=0, high=1, seed=1)
    for weight in (1.0, 2.5):
        assert_gradient(
            b,
            lambda x, weight=weight: b.ops.bce_with_logits(x, b.ops.tensor(target), weight),
            lambda x, weight=weight: bce(x, target, weight),
            uniform((2, 3), low=-4, high=4),
        )
        logits, variable = b.variable(uniform((2, 3))), b.variable(target)
        loss = b.ops.bce_with_logits(logits, variable, weight)
        _, gradient = b.autograd.gradients(loss, [logits, variable])
        assert_equal(b.ops.to_numpy(gradient), np.zeros((2, 3)))


@judges("ops.bce_with_logits")
def large_logits_do_not_overflow_and_nothing_is_nan(b: Backend) -> None:
    logits = np.array([1000.0, -1000.0, 1000.0], "float32")
    assert_values(b, b.ops.bce_with_logits, bce, logits, np.array([0.0, 1.0, 1.0], "float32"))
    for weight in (1.0, 2.5):
        x = b.variable(np.zeros((0, 3), "float32"))
        empty = b.ops.bce_with_logits(x, b.zeros((0, 3)), weight)
        assert_equal(b.ops.to_numpy(empty), np.array(np.nan, "float32"))
        (gradient,) = b.autograd.gradients(empty, [x])
        assert_equal(b.ops.to_numpy(gradient), np.zeros((0, 3), "float32"))


@judges("ops.bce_with_logits")
def refuses_two_shapes(b: Backend) -> None:
    for left, right in (((2,), (3,)), ((2, 3), (3, 2)), ((2, 3), (3,))):
        x, target = b.zeros(left), b.zeros(right)
        for weight in (1.0, 2.5):
            assert_raises(
                ValueError,
                lambda x=x, t=target, w=weight: b.ops.bce_with_logits(x, t, w),
                str(right),
            )


@judges("ops.bce_terms")
def one_cross_entropy_an_element(b: Backend) -> None:
    large = np.array([1000.0, -1000.0, 1000.0], "float32")
    for weight in (1.0, 2.5):

        def found(x: Tensor, t: Tensor, weight: float = weight) -> Tensor:
            return b.ops.bce_terms(x, t, weight)

        def wanted(x: np.ndarray, t: np.ndarray, weight: float = weight) -> np.ndarray:
            return bce_terms(x, t, weight)

        for shape in ((3,), (2, 3), (2, 3, 2, 2), (), (0, 3)):
            for dtype in ("float32", "float64"):
                logits = uniform(shape, dtype, -6, 6)
                assert_values(b, found, wanted, logits, uniform(shape, dtype, 0, 1, seed=1))
        assert_values(b, found, wanted, large, np.array([0.0, 1.0, 1.0], "float32"))


@judges("ops.bce_terms")
def gradient_of_each_element_reaches_the_logits_only(b: Backend) -> None:
    target = uniform((2, 3), low=0, high=1, seed=1)
    for weight in (1.0, 2.5):
        assert_gradient(
            b,
            lambda x, weight=weight: b.ops.bce_terms(x, b.ops.tensor(target), weight),
            lambda x, weight=weight: bce_terms(x, target, weight),
            uniform((2, 3), low=-4, high=4),
        )
        logits, variable = b.variable(uniform((2, 3))), b.variable(target)
        total = b.ops.sum(b.ops.bce_terms(logits, variable, weight))
        _, gradient = b.autograd.gradients(total, [logits, variable])
        assert_equal(b.ops.to_numpy(gradient), np.zeros((2, 3)))


@judges("ops.bce_terms")
def refuses_two_shapes_for_single_elements(b: Backend) -> None:
    for left, right in (((2,), (3,)), ((2, 3), (3, 2)), ((2, 3), (3,))):
        x, target = b.zeros(left), b.zeros(right)
        assert_raises(ValueError, lambda x=x, t=target: b.ops.bce_terms(x, t), str(right))


@judges("ops.ema_update_")
def averages_in_place(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        arrays = [uniform(shape, dtype, seed=i) for i, shape in enumerate([(3,), (2, 2), (), (0,)])]
        averages = [b.ops.tensor(array) for array in arrays]
        values = [b.ops.tensor(array * 3.0 + 1.0) for array in map(np.asarray, arrays)]
        b.ops.ema_update_(averages, values, 0.9)
        for average, array in zip(averages, arrays, strict=True):
            wanted = 0.9 * array.astype("float64") + 0.1 * (array.astype("float64") * 3.0 + 1.0)
            assert_equal(b.ops.to_numpy(average), np.asarray(wanted).astype(dtype))


@judges("ops.ema_update_")
def changes_the_module_that_owns_the_tensors(b: Backend) -> None:
    module = b.nn.BatchNorm2d(2)
    averages = b.nn.state_tensors(b.nn.frozen_copy(module))
    names = ("weight", "bias")
    values = [b.variable(np.full(2, 5.0, "float32")) for _ in names]
    b.ops.ema_update_([averages[name] for name in names], values, 0.5)
    assert_equal(b.ops.to_numpy(averages["weight"]), np.full(2, 3.0, "float32"))
    own = b.nn.state_tensors(module)
    b.ops.ema_update_([own[name] for name in names], values, 0.5)
    assert_equal(b.nn.state_arrays(module)["bias"], np.full(2, 2.5, "float32"))
    assert all(parameter.requires_grad for _, parameter in b.nn.named_parameters(module))


@judges("ops.ema_update_")
def an_average_of_equals_stays_bit_for_bit(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        array = uniform((1000,), dtype)
        average, value = b.ops.tensor(array), b.ops.tensor(array)
        for decay in (0.0005, 0.3, 0.9999):
            b.ops.ema_update_([average], [value], decay)
        np.testing.assert_array_equal(b.ops.to_numpy(average), array)


@judges("ops.ema_update_")
def accepts_none_and_refuses_unequal_numbers(b: Backend) -> None:
    b.ops.ema_update_([], [], 0.5)
    x = b.zeros((2,))
    assert_raises(ValueError, lambda: b.ops.ema_update_([x, x], [x], 0.5), "1 values")


@judges("ops.ema_update_")
def a_lost_update_moves_no_average(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        arrays = [uniform((3,), dtype), uniform((2, 2), dtype, seed=1)]
        averages = [b.ops.tensor(array) for array in arrays]
        values = [b.ops.tensor(array * 3.0 + 1.0) for array in arrays]
        b.ops.ema_update_(averages, values, 0.9, b.full((), 1))
        for average, array in zip(averages, arrays, strict=True):
            np.testing.assert_array_equal(b.ops.to_numpy(average), array)
        b.ops.ema_update_(averages, values, 0.9, b.full((), 0))
        for average, array in zip(averages, arrays, strict=True):
            wanted = 0.9 * array.astype("float64") + 0.1 * (array.astype("float64") * 3.0 + 1.0)
            assert_equal(b.ops.to_numpy(average), wanted.astype(dtype))


@judges("ops.restore_")
def only_what_is_not_finite_and_lost_is_restored(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        arrays = [np.array([1, np.nan, -np.inf, 0]), np.array([[np.inf, 2]]), np.array(3.0)]
        for lost in (0, 1):
            values = [b.ops.tensor(array.astype(dtype)) for array in arrays]
            others = [b.ops.tensor(np.full(array.shape, 7.0, dtype)) for array in arrays]
            b.ops.restore_(values, others, b.full((), lost))
            for value, array in zip(values, arrays, strict=True):
                wanted = np.where(np.isfinite(array), array, 7.0) if lost else array
                assert_equal(b.ops.to_numpy(value), np.asarray(wanted).astype(dtype))


@judges("ops.restore_")
def restores_the_module_that_owns_the_tensors(b: Backend) -> None:
    module = b.nn.BatchNorm2d(2)
    other = b.nn.frozen_copy(module)
    spoiled = {**b.nn.state_arrays(module), "running_var": np.array([5.0, np.nan], "float32")}
    b.nn.load_state_arrays(module, spoiled)
    pair = (b.nn.float_tensors(x)() for x in (module, other))
    b.ops.restore_(*pair, b.full((), 1))
    assert_equal(b.nn.state_arrays(module)["running_var"], np.array([5.0, 1.0], "float32"))
    assert all(x.requires_grad for _, x in b.nn.named_parameters(module))


@judges("ops.restore_")
def restores_none_and_refuses_unequal_numbers(b: Backend) -> None:
    b.ops.restore_([], [], b.full((), 1))
    x = b.zeros((2,))
    assert_raises(ValueError, lambda: b.ops.restore_([x, x], [x], b.full((), 1)), "1 others")
