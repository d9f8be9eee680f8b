"""Checks of `contract.NN`: the layers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.judging import (
    CHECKS,
    CLEAR_ERROR,
    FLOATS,
    Backend,
    Check,
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
# One weight is negative, one bias large; in the others SiLU cannot be undone in a channel.
NORMS = {
    "invertible": (np.array([0.5, -2.0, 0.1]), np.array([1.0, -3.0, 4.0])),
    "a weight of 0": (np.array([0.5, 0.0, 2.0]), np.array([1.0, 0.0, 3.0])),
    "a weight near 0": (np.array([0.5, 1e-9, 2.0]), np.array([1.0, 5.0, 3.0])),
}


class Norm:
    """BatchNorm alone, or with SiLU as one operation, and the same in NumPy."""

    def __init__(self, b: Backend, fused: bool, dtype: str, case: str = "invertible") -> None:
        weight, bias = NORMS[case]
        self.b, self.fused = b, fused
        self.norm = load(
            b, b.nn.BatchNorm2d(3, 1e-3, 0.03), dtype, {"weight": weight, "bias": bias}
        )
        self.named_parameters = self.norm.named_parameters

    def __call__(self, x: Any) -> Any:
        return self.b.fused.batch_norm_silu(self.norm, x) if self.fused else self.norm(x)

    def activated(self, z: np.ndarray) -> np.ndarray:
        return z / (1 + np.exp(-z)) if self.fused else z

    def reference(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        return self.activated(normalize(x, weight, bias, EPS))

    def state(self) -> dict[str, np.ndarray]:
        return dict(self.b.nn.state_arrays(self.norm))


def judges_norms(function: Callable[[Backend, bool], None]) -> None:
    """Register a check of BatchNorm, alone and with SiLU."""
    for name, fused in (("nn.BatchNorm2d", False), ("fused.batch_norm_silu", True)):
        run = partial(function, fused=fused)
        CHECKS.append(Check(name, function.__name__, run, trains=True))


@judges_norms
def training_uses_and_gathers_batch_statistics(b: Backend, fused: bool) -> None:
    for case, (weight, bias) in NORMS.items():
        for dtype in FLOATS:
            layer = Norm(b, fused, dtype, case)
            mean, variance = np.zeros(3), np.ones(3)
            for step in range(3):
                x = uniform((3, 3, 4, 5), dtype, -1, 3, seed=step)
                found, x = b.ops.to_numpy(layer(b.ops.tensor(x))), x.astype("float64")
                wanted = layer.reference(x, weight, bias).astype(dtype)
                assert_equal(found, wanted, LAYER_TOLERANCE[dtype])
                mean = (1 - MOMENTUM) * mean + MOMENTUM * x.mean((0, 2, 3))
                variance = (1 - MOMENTUM) * variance + MOMENTUM * x.var((0, 2, 3), ddof=1)
            state, tolerance = layer.state(), RUNNING_TOLERANCE[dtype]
            assert_equal(state["running_mean"], mean.astype(dtype), tolerance)
            assert_equal(state["running_var"], variance.astype(dtype), tolerance)
            assert state["num_batches_tracked"] == 3


@judges_norms
def evaluation_uses_running_statistics_and_keeps_them(b: Backend, fused: bool) -> None:
    gathered = {"running_mean": np.array([0.3, -2.0, 1.0]), "running_var": np.array([0.5, 4.0, 1])}
    for dtype in FLOATS:
        layer, x = Norm(b, fused, dtype), uniform((2, 3, 3, 3), dtype)
        b.nn.load_state_arrays(layer.norm.eval(), layer.state() | gathered)
        before = layer.state()
        parts = (*gathered.values(), *NORMS["invertible"])
        mean, variance, weight, bias = (part.reshape(1, 3, 1, 1) for part in parts)
        wanted = layer.activated((x - mean) / np.sqrt(variance + EPS) * weight + bias)
        found = b.ops.to_numpy(layer(b.ops.tensor(x)))
        assert_equal(found, wanted.astype(dtype), LAYER_TOLERANCE[dtype])
        for name, array in layer.state().items():
            assert_equal(array, before[name])


@judges_norms
def gradients_in_training_and_evaluation(b: Backend, fused: bool) -> None:
    x = uniform((2, 3, 3, 2))
    for case, arrays in NORMS.items():
        layer = Norm(b, fused, "float64", case)
        assert_layer_gradient(b, layer, layer.reference, x, *arrays)
    evaluated = Norm(b, fused, "float64")
    evaluated.norm.eval()
    assert_layer_gradient(
        b,
        evaluated,
        lambda x, w, c: evaluated.activated(
            x / np.sqrt(1 + EPS) * w.reshape(1, -1, 1, 1) + c.reshape(1, -1, 1, 1)
        ),
        x,
        *NORMS["invertible"],
    )


@judges_norms
def refuses_to_learn_from_one_value_a_channel(b: Backend, fused: bool) -> None:
    layer, one = Norm(b, fused, "float32"), b.ops.tensor(np.ones((1, 3, 1, 1), "float32"))
    before = layer.state()
    assert_refused("(1, 3, 1, 1)", layer, one)
    for name, array in layer.state().items():
        assert_equal(array, before[name])
    for shape in ((2, 3, 1, 1), (1, 3, 2, 1)):
        layer(b.ops.tensor(uniform(shape, "float32")))
    assert np.isfinite(layer.state()["running_var"]).all()
    layer.norm.eval()
    layer(one)


@judges("nn.BatchNorm2d")
def learns_or_says_that_it_does_not(b: Backend) -> None:
    layer, x = b.nn.BatchNorm2d(2), b.ops.tensor(uniform((2, 2, 3, 3), "float32"))
    if not b.trains:
        assert_refused("eval()", layer.train(), x)
    before = b.nn.state_arrays(layer)
    wanted = uniform((2, 2, 3, 3), "float32") / np.sqrt(np.float32(1 + 1e-5))
    assert_equal(b.ops.to_numpy(layer.eval()(x)), wanted, LAYER_TOLERANCE["float32"])
    for name, array in b.nn.state_arrays(layer).items():
        assert_equal(array, before[name])


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
