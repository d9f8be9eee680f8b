"""Checks of `contract.Fused.batch_norm_silu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.checks_layers import (
    EPS,
    LAYER_TOLERANCE,
    RUNNING_TOLERANCE,
    assert_layer_gradient,
    load,
    normalize,
)
from tests.conformance.judging import Backend, assert_equal, assert_refused, judges, uniform

NAME = "fused.batch_norm_silu"
# One weight is negative, one bias large; in the second case a channel cannot be read off.
CASES = {
    "read off": (np.array([0.5, -2.0, 0.1]), np.array([1.0, -3.0, 4.0])),
    "a weight of 0": (np.array([0.5, 0.0, 2.0]), np.array([1.0, 0.0, 3.0])),
    "a weight near 0": (np.array([0.5, 1e-9, 2.0]), np.array([1.0, 5.0, 3.0])),
}


def reference(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    z = normalize(x, weight, bias, EPS)
    return np.asarray(z / (1 + np.exp(-z)))


class Joined:
    """Both layers as one, with the parameters of the BatchNorm."""

    def __init__(self, b: Backend, norm: Any) -> None:
        self.b, self.norm = b, norm

    def __call__(self, x: Any) -> Any:
        return self.b.fused.batch_norm_silu(self.norm, x)

    def named_parameters(self) -> Any:
        return self.norm.named_parameters()


def layer_of(b: Backend, case: str, dtype: str) -> Joined:
    weight, bias = CASES[case]
    norm = b.nn.BatchNorm2d(3, 1e-3, 0.03)
    return Joined(b, load(b, norm, dtype, {"weight": weight, "bias": bias}))


@judges(NAME)
def values_and_running_statistics(b: Backend) -> None:
    x = uniform((3, 3, 4, 5), low=-1, high=3)
    for case, (weight, bias) in CASES.items():
        for dtype in ("float32", "float64"):
            layer = layer_of(b, case, dtype)
            narrow = x.astype(dtype)
            found = b.ops.to_numpy(layer(b.ops.tensor(narrow)))
            wanted = reference(narrow.astype("float64"), weight, bias).astype(dtype)
            assert_equal(found, wanted, LAYER_TOLERANCE[dtype])
            state, tolerance = b.nn.state_arrays(layer.norm), RUNNING_TOLERANCE[dtype]
            mean, variance = 0.03 * x.mean((0, 2, 3)), x.var((0, 2, 3), ddof=1)
            assert_equal(state["running_mean"], mean.astype(dtype), tolerance)
            assert_equal(state["running_var"], (0.97 + 0.03 * variance).astype(dtype), tolerance)
            assert state["num_batches_tracked"] == 1


@judges(NAME)
def gradients_are_those_of_the_two_layers(b: Backend) -> None:
    x = uniform((2, 3, 3, 2))
    for case, (weight, bias) in CASES.items():
        assert_layer_gradient(b, layer_of(b, case, "float64"), reference, x, weight, bias)
        layer, weights = layer_of(b, case, "float32"), uniform(x.shape, "float32", seed=5)
        found = []
        for run in (layer, lambda x, norm=layer.norm: b.ops.silu(norm(x))):
            variable = b.variable(x.astype("float32"))
            inputs = [variable, *(p for _, p in b.nn.named_parameters(layer.norm))]
            total = b.ops.sum(run(variable) * b.ops.tensor(weights))
            found.append([b.ops.to_numpy(g) for g in b.autograd.gradients(total, inputs)])
        for one, two in zip(*found, strict=True):
            assert_equal(one, two, tolerance=1e-5)  # a bias 40 times the weight costs two digits


@judges(NAME)
def channels_last_maps_give_the_same(b: Backend) -> None:
    if not b.device.supports("channels_last"):
        return
    x, weights = uniform((2, 3, 4, 3)), uniform((2, 3, 4, 3), seed=5)
    found = []
    for order in (lambda x: x, b.ops.channels_last):
        variable, layer = b.variable(x), layer_of(b, "read off", "float64")
        total = b.ops.sum(layer(order(variable)) * b.ops.tensor(weights))
        found.append(b.ops.to_numpy(b.autograd.gradients(total, [variable])[0]))
    assert_equal(found[0], found[1], tolerance=1e-13)


@judges(NAME)
def fixed_parameters_get_no_gradient(b: Backend) -> None:
    for frozen in (("weight", "bias"), ("bias",)):
        layer, x = layer_of(b, "read off", "float64"), b.variable(uniform((2, 3, 3, 2)))
        parameters = dict(b.nn.named_parameters(layer.norm))
        b.nn.set_trainable([parameters[name] for name in frozen], False)
        wanted = [x, *(p for name, p in parameters.items() if name not in frozen)]
        weights = b.ops.tensor(uniform((2, 3, 3, 2), seed=5))
        for gradient in b.autograd.gradients(b.ops.sum(layer(x) * weights), wanted):
            assert np.abs(b.ops.to_numpy(gradient)).max() > 1e-3


@judges(NAME)
def evaluation_keeps_its_statistics(b: Backend) -> None:
    layer, x = layer_of(b, "read off", "float64"), uniform((2, 3, 3, 3))
    layer.norm.eval()
    weight, bias = (array.reshape(1, 3, 1, 1) for array in CASES["read off"])
    z = x / np.sqrt(1 + EPS) * weight + bias
    assert_equal(b.ops.to_numpy(layer(b.ops.tensor(x))), z / (1 + np.exp(-z)), 1e-13)
    assert b.nn.state_arrays(layer.norm)["num_batches_tracked"] == 0


@judges(NAME)
def refuses_one_value_a_channel(b: Backend) -> None:
    layer = layer_of(b, "read off", "float32")
    one = b.ops.tensor(np.ones((1, 3, 1, 1), "float32"))
    assert_refused("(1, 3, 1, 1)", layer, one)
    assert b.nn.state_arrays(layer.norm)["num_batches_tracked"] == 0
