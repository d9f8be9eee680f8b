"""Checks of `contract.Ops`: network and loss."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.conformance.judging import (
    CHECKS,
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


def upsample(x: np.ndarray) -> np.ndarray:
    return x.repeat(2, axis=2).repeat(2, axis=3)


@judges("ops.upsample_nearest_2x")
def repeats_each_value_four_times(b: Backend) -> None:
    for shape in ((2, 3, 4, 5), (1, 1, 1, 1), (0, 3, 2, 2), (2, 1, 3, 2)):
        assert_op(b, b.ops.upsample_nearest_2x, upsample, shape)


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


CROSS_ENTROPIES = {"bce_with_logits": bce, "bce_terms": bce_terms}


def check_cross_entropy(name: str, b: Backend) -> None:
    function, reference = getattr(b.ops, name), CROSS_ENTROPIES[name]
    target = uniform((2, 3), low=0, high=1, seed=1)
    large = np.array([1000.0, -1000.0, 1000.0], "float32"), np.array([0, 1, 1], "float32")
    for weight in (1.0, 2.5, 0.3):
        for shape in ((3,), (2, 3), (2, 3, 2, 2), ()):
            for dtype in FLOATS:
                pair = uniform(shape, dtype, -6, 6), uniform(shape, dtype, 0, 1, seed=1)
                assert_values(b, function, reference, *pair, args=(weight,))
        assert_values(b, function, reference, *large, args=(weight,))
        parts = [uniform((9,), low=0, high=1, seed=seed) for seed in (2, 3)]
        assert_values(
            b,
            lambda x, y, weight=weight: function(x[3:], y[3:], weight),
            lambda x, y, weight=weight: reference(x[3:], y[3:], weight),
            *parts,
        )
        assert_gradient(
            b,
            lambda x, weight=weight: function(x, b.ops.tensor(target), weight),
            lambda x, weight=weight: reference(x, target, weight),
            uniform((2, 3), low=-4, high=4),
        )
        logits, variable = b.variable(uniform((2, 3))), b.variable(target)
        total = b.ops.sum(function(logits, variable, weight))
        _, gradient = b.autograd.gradients(total, [logits, variable])
        assert_equal(b.ops.to_numpy(gradient), np.zeros((2, 3)))


def check_cross_entropy_of_nothing(name: str, b: Backend) -> None:
    for weight in (1.0, 2.5):
        x = b.variable(np.zeros((0, 3), "float32"))
        empty = getattr(b.ops, name)(x, b.zeros((0, 3)), weight)
        wanted = np.full((0, 3) if name == "bce_terms" else (), np.nan, "float32")
        assert_equal(b.ops.to_numpy(empty), wanted)
        (gradient,) = b.autograd.gradients(b.ops.sum(empty), [x])
        assert_equal(b.ops.to_numpy(gradient), np.zeros((0, 3), "float32"))


def check_cross_entropy_errors(name: str, b: Backend) -> None:
    for left, right in (((2,), (3,)), ((2, 3), (3, 2)), ((2, 3), (3,))):
        for weight in (1.0, 2.5):
            function = getattr(b.ops, name)
            assert_refused(str(right), function, b.zeros(left), b.zeros(right), weight)


for name in CROSS_ENTROPIES:
    for label, run in (
        ("values, and a gradient by the logits alone", check_cross_entropy),
        ("of nothing", check_cross_entropy_of_nothing),
        ("refuses two shapes", check_cross_entropy_errors),
    ):
        CHECKS.append(Check(f"ops.{name}", label, partial(run, name)))


@judges("ops.ema_update_")
def averages_in_place_and_keeps_what_a_lost_update_would_move(b: Backend) -> None:
    for dtype in FLOATS:
        arrays = [uniform(shape, dtype, seed=i) for i, shape in enumerate([(3,), (2, 2), (), (0,)])]
        averages = [b.ops.tensor(array) for array in arrays]
        values = [b.ops.tensor(np.asarray(array * 3.0 + 1.0).astype(dtype)) for array in arrays]
        for lost, share in (((b.full((), 1),), 0.0), ((b.full((), 0),), 0.1), ((), 0.19)):
            b.ops.ema_update_(averages, values, 0.9, *lost)
            for average, array in zip(averages, arrays, strict=True):
                exact = array.astype("float64")
                wanted = (1 - share) * exact + share * (exact * 3.0 + 1.0)
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
    assert_refused("1 values", b.ops.ema_update_, [x, x], [x], 0.5)


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
    assert_refused("1 others", b.ops.restore_, [x, x], [x], b.full((), 1))
