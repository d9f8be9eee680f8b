"""Checks of `contract.NN`: the layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.judging import (
    CLEAR_ERROR,
    Backend,
    assert_equal,
    assert_gradient,
    assert_refused,
    assert_values,
    central_differences,
    judges,
    uniform,
)

# Sums of up to 200 products in another order.
LAYER_TOLERANCE = {"float32": 5e-6, "float64": 1e-13}
EPS, MOMENTUM = float(np.float32(1e-3)), float(np.float32(0.03))  # a layer rounds its constants


def load(b: Backend, layer: Any, dtype: str, arrays: dict[str, np.ndarray]) -> Any:
    b.nn.place(layer, "cpu", dtype)
    state = b.nn.state_arrays(layer)
    assert set(arrays) <= set(state), f"{sorted(state)} lack some of {sorted(arrays)}"
    b.nn.load_state_arrays(layer, state | arrays)
    return layer


def assert_layer_gradient(
    b: Backend, layer: Any, reference: Callable[..., np.ndarray], *arrays: np.ndarray
) -> None:
    """Check gradients of the input and of the parameters; reference takes them in that order."""
    x = b.variable(arrays[0])
    inputs = [x, *(parameter for _, parameter in b.nn.named_parameters(layer))]
    weights = uniform(reference(*arrays).shape, seed=99)
    found = b.autograd.gradients(b.ops.sum(layer(x) * b.ops.tensor(weights)), inputs)
    wanted = central_differences(lambda *a: float(np.sum(reference(*a) * weights)), arrays)
    for gradient, difference in zip(found, wanted, strict=True):
        # The differences err by step² and by rounding / step, both below this.
        assert_equal(b.ops.to_numpy(gradient), difference, tolerance=1e-6)


def windows(x: np.ndarray, kernel_size: int, stride: int) -> list[np.ndarray]:
    """Return the (B, C, H', W') values under each element of the kernel."""
    height = (x.shape[2] - kernel_size) // stride + 1
    width = (x.shape[3] - kernel_size) // stride + 1
    return [
        x[
            :,
            :,
            i : i + stride * (height - 1) + 1 : stride,
            j : j + stride * (width - 1) + 1 : stride,
        ]
        for i in range(kernel_size)
        for j in range(kernel_size)
    ]


def convolve(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int, padding: int, groups: int
) -> np.ndarray:
    out_channels, group_channels, kernel_size, _ = weight.shape
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    taps = weight.reshape(groups, out_channels // groups, group_channels, kernel_size**2)
    total: Any = 0.0
    for tap, window in enumerate(windows(padded, kernel_size, stride)):
        batch, _, height, width = window.shape
        grouped = window.reshape(batch, groups, group_channels, height, width)
        total = total + np.einsum("bgchw,goc->bgohw", grouped, taps[..., tap])
    return total.reshape(batch, out_channels, height, width) + bias.reshape(1, -1, 1, 1)


# in, out, kernel, stride, padding, groups
CONVOLUTIONS = (
    (3, 4, 3, 1, 1, 1),
    (3, 4, 6, 2, 2, 1),
    (4, 6, 3, 2, 0, 2),
    (4, 4, 3, 1, 1, 4),
    (3, 5, 1, 1, 0, 1),
    (4, 6, 1, 1, 0, 2),
    (3, 5, 1, 2, 0, 1),
    (3, 5, 1, 1, 1, 1),
)


@judges("nn.Conv2d")
def convolution_and_its_gradients(b: Backend) -> None:
    for in_channels, out_channels, kernel_size, stride, padding, groups in CONVOLUTIONS:
        x = uniform((2, in_channels, 6, 7))
        weight = uniform((out_channels, in_channels // groups, kernel_size, kernel_size), seed=1)
        bias = uniform((out_channels,), seed=2)
        for with_bias in (True, False):
            sizes = in_channels, out_channels, kernel_size, stride, padding
            layer = b.nn.Conv2d(*sizes, groups=groups, bias=with_bias)
            given = {"weight": weight, "bias": bias} if with_bias else {"weight": weight}

            def reference(x, w, c=0.0 * bias, s=stride, p=padding, g=groups):
                return convolve(x, w, c, s, p, g).astype(x.dtype)

            for dtype in ("float32", "float64"):
                load(b, layer, dtype, given)
                arrays = [array.astype(dtype) for array in given.values()]
                assert_values(
                    b,
                    layer,
                    lambda x, arrays=arrays: reference(x, *arrays),
                    x.astype(dtype),
                    tolerance=LAYER_TOLERANCE[dtype],
                )
            if b.trains:
                assert_layer_gradient(b, layer, reference, x, *given.values())


@judges("nn.Conv2d")
def an_empty_batch_is_convolved_to_an_empty_batch(b: Backend) -> None:
    for kernel_size in (1, 3):
        layer = b.nn.Conv2d(3, 4, kernel_size, padding=kernel_size // 2)
        found = layer(b.zeros((0, 3, 5, 5)))
        assert_equal(b.ops.to_numpy(found), np.zeros((0, 4, 5, 5), "float32"))


@judges("nn.Conv2d")
def refuses_what_does_not_fit(b: Backend) -> None:
    for kernel_size in (1, 3):
        layer = b.nn.Conv2d(3, 4, kernel_size)
        for shape, dtype in (((1, 2, 5, 5), "float32"), ((1, 3, 5, 5), "float64")):
            x = b.zeros(shape, dtype)
            assert_refused("", layer, x, errors=CLEAR_ERROR)


def normalize(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    """Normalize (B, C, H, W) by its batch statistics."""
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    scale, offset = weight.reshape(1, -1, 1, 1), bias.reshape(1, -1, 1, 1)
    return (x - mean) / np.sqrt(variance + eps) * scale + offset


# OneFlow also forms 1 - momentum in float32, 3e-8 of a running statistic.
RUNNING_TOLERANCE = {"float32": 5e-6, "float64": 1e-7}
WEIGHT, BIAS = np.array([0.5, 2.0]), np.array([1.0, -3.0])


@judges("nn.BatchNorm2d")
def learns_or_says_that_it_does_not(b: Backend) -> None:
    layer, x = b.nn.BatchNorm2d(2), b.ops.tensor(uniform((2, 2, 3, 3), "float32"))
    if not b.trains:
        assert_refused("eval()", layer.train(), x)
    before = b.nn.state_arrays(layer)
    layer.eval()(x)
    for name, array in b.nn.state_arrays(layer).items():
        assert_equal(array, before[name])
    if b.trains:
        layer.train()(x)
        assert b.nn.state_arrays(layer)["num_batches_tracked"] == 1


@judges("nn.BatchNorm2d", trains=True)
def refuses_to_learn_from_one_value_a_channel(b: Backend) -> None:
    layer, one = b.nn.BatchNorm2d(2), b.ops.tensor(np.ones((1, 2, 1, 1), "float32"))
    before = b.nn.state_arrays(layer.train())
    assert_refused("(1, 2, 1, 1)", layer, one)
    for name, array in b.nn.state_arrays(layer).items():
        assert_equal(array, before[name])
    for shape in ((2, 2, 1, 1), (1, 2, 2, 1)):
        layer(b.ops.tensor(uniform(shape, "float32")))
    assert np.isfinite(b.nn.state_arrays(layer)["running_var"]).all()
    layer.eval()(one)


@judges("nn.BatchNorm2d", trains=True)
def training_uses_and_gathers_batch_statistics(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        layer = load(b, b.nn.BatchNorm2d(2, 1e-3, 0.03), dtype, {"weight": WEIGHT, "bias": BIAS})
        running_mean, running_variance = np.zeros(2), np.ones(2)
        for step in range(3):
            x = uniform((3, 2, 4, 5), dtype, -1, 3, seed=step).astype("float64")
            found = b.ops.to_numpy(layer(b.ops.tensor(x.astype(dtype))))
            wanted = normalize(x, WEIGHT, BIAS, EPS).astype(dtype)
            assert_equal(found, wanted, LAYER_TOLERANCE[dtype])
            unbiased = x.var((0, 2, 3), ddof=1)
            running_mean = (1 - MOMENTUM) * running_mean + MOMENTUM * x.mean((0, 2, 3))
            running_variance = (1 - MOMENTUM) * running_variance + MOMENTUM * unbiased
        state = b.nn.state_arrays(layer)
        tolerance = RUNNING_TOLERANCE[dtype]
        assert_equal(state["running_mean"], running_mean.astype(dtype), tolerance)
        assert_equal(state["running_var"], running_variance.astype(dtype), tolerance)
        assert state["num_batches_tracked"] == 3


@judges("nn.BatchNorm2d")
def evaluation_uses_running_statistics_and_keeps_them(b: Backend) -> None:
    mean, variance = np.array([0.3, -2.0]), np.array([0.5, 4.0])
    state = {"weight": WEIGHT, "bias": BIAS, "running_mean": mean, "running_var": variance}
    for dtype in ("float32", "float64"):
        layer = load(b, b.nn.BatchNorm2d(2, 1e-3), dtype, state).eval()
        x = uniform((2, 2, 3, 3), dtype)
        found = b.ops.to_numpy(layer(b.ops.tensor(x)))
        scale = WEIGHT / np.sqrt(variance + EPS)
        wanted = (x - mean.reshape(1, 2, 1, 1)) * scale.reshape(1, 2, 1, 1) + BIAS.reshape(
            1, 2, 1, 1
        )
        assert_equal(found, wanted.astype(dtype), LAYER_TOLERANCE[dtype])
        assert_equal(b.nn.state_arrays(layer)["running_mean"], mean.astype(dtype))
        assert b.nn.state_arrays(layer)["num_batches_tracked"] == 0


@judges("nn.BatchNorm2d", trains=True)
def gradients_in_training_and_evaluation(b: Backend) -> None:
    x = uniform((2, 2, 3, 2))
    layer = load(b, b.nn.BatchNorm2d(2, 1e-3), "float64", {"weight": WEIGHT, "bias": BIAS})
    assert_layer_gradient(b, layer, lambda *a: normalize(*a, EPS), x, WEIGHT, BIAS)
    layer = load(b, b.nn.BatchNorm2d(2, 1e-3), "float64", {"weight": WEIGHT, "bias": BIAS}).eval()
    scale = 1.0 / np.sqrt(1.0 + EPS)
    assert_layer_gradient(
        b,
        layer,
        lambda x, w, c: x * scale * w.reshape(1, -1, 1, 1) + c.reshape(1, -1, 1, 1),
        x,
        WEIGHT,
        BIAS,
    )


@judges("nn.BatchNorm2d", trains=True)
def a_mean_of_a_thousand_deviations_loses_no_digits(b: Backend) -> None:
    x = uniform((8, 2, 16, 16), low=-1.7, high=1.7) + np.array([1000, -50]).reshape(1, 2, 1, 1)
    x = x.astype("float32")
    layer = b.nn.BatchNorm2d(2, 1e-3, 0.5)
    found = b.ops.to_numpy(layer(b.ops.tensor(x)))
    exact = x.astype("float64")
    wanted = normalize(exact, np.ones(2), np.zeros(2), 1e-3)
    # One step of float32 at 1000 is 6e-5; the mean may err by some of them.
    assert_equal(found, wanted.astype("float32"), tolerance=2e-4)
    unbiased = exact.var((0, 2, 3), ddof=1).astype("float32")
    state = b.nn.state_arrays(layer)
    assert_equal(state["running_var"], 0.5 + 0.5 * unbiased, tolerance=1e-4)
    assert_equal(state["running_mean"], (0.5 * exact.mean((0, 2, 3))).astype("float32"), 1e-6)


def pool(x: np.ndarray, kernel_size: int, stride: int, padding: int) -> np.ndarray:
    width = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    padded = np.pad(x, width, constant_values=-np.inf)
    return np.max(windows(padded, kernel_size, stride), axis=0)


@judges("nn.MaxPool2d")
def largest_of_each_window(b: Backend) -> None:
    for kernel_size, stride, padding in ((5, 1, 2), (2, 2, 0), (3, 2, 1)):
        layer = b.nn.MaxPool2d(kernel_size, stride, padding)

        def reference(x, k=kernel_size, s=stride, p=padding):
            return pool(x, k, s, p)

        for shape in ((2, 3, 6, 7), (0, 3, 6, 7)):
            # All negative: padding with zeros would show.
            x = uniform(shape, "float32", -3, -1)
            assert_values(b, layer, reference, x)
        assert_gradient(b, layer, reference, uniform((2, 1, 6, 5)))
