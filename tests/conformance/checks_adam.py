"""Checks of Adam and AdamW of `contract.Optim`, against the formulas in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.checks_optim import (
    SHAPES,
    STEP_TOLERANCE,
    a_lost_step_leaves_no_trace,
    assert_tensors,
    backward,
    gradients_of_step,
    parameters,
)
from tests.conformance.judging import Backend, assert_equal, assert_raises, judges

NAMES = ("Adam", "AdamW")
DECAYS = {"conv.weight": 0.1, "bn.weight": 0.0, "bn.bias": 0.0}


class Reference:
    """Both optimizers as the contract writes them, its constants rounded to float32."""

    def __init__(self, values: dict[str, np.ndarray], decoupled: bool) -> None:
        self.values = {name: value.astype("float64") for name, value in values.items()}
        self.decoupled = decoupled
        self.first = {name: np.zeros_like(value) for name, value in self.values.items()}
        self.second = {name: np.zeros_like(value) for name, value in self.values.items()}
        self.updates = 0

    def step(
        self, gradients: dict[str, np.ndarray], rates: dict[str, float], momentum: float
    ) -> None:
        self.updates += 1
        beta1, beta2 = float(np.float32(momentum)), float(np.float32(0.999))
        second_correction = np.sqrt(1 - beta2**self.updates)
        eps = float(np.float32(float(np.float32(1e-8)) * second_correction))
        for name, gradient in gradients.items():
            rate, decay = float(np.float32(rates[name])), float(np.float32(DECAYS[name]))
            if self.decoupled:
                self.values[name] = self.values[name] * (1 - rate * decay)
            else:
                gradient = gradient + decay * self.values[name]
            m = self.first[name] = beta1 * self.first[name] + (1 - beta1) * gradient
            v = self.second[name] = beta2 * self.second[name] + (1 - beta2) * gradient**2
            rate = float(np.float32(rate * second_correction / (1 - beta1**self.updates)))
            self.values[name] = self.values[name] - rate * m / (np.sqrt(v) + eps)

    def state(self) -> dict[str, Any]:
        moments = {"first_moment": self.first, "second_moment": self.second}
        return {
            f"{name}.{kind}": value
            for kind, values in moments.items()
            for name, value in values.items()
        } | {"updates": np.array(self.updates)}


def two_groups(b: Backend, name: str, tensors: dict[str, Any]) -> Any:
    """Return the weights in a group with decay, the rest in a group without."""
    weights = {"conv.weight": tensors["conv.weight"]}
    others = {other: tensors[other] for other in ("bn.weight", "bn.bias")}
    return getattr(b.optim, name)([(weights, 0.1), (others, 0.0)])


def arrays_of(b: Backend, tensors: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: b.ops.to_numpy(x) for name, x in tensors.items()}


def train(b: Backend, optimizer: Any, tensors: dict[str, Any], steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        backward(b, tensors, gradients_of_step(step))
        optimizer.step([0.1 / (step + 1), 0.05], 0.8 + 0.05 * step)


def follows_the_formula(b: Backend, name: str, dtype: str) -> None:
    tensors = parameters(b, dtype)
    reference = Reference(arrays_of(b, tensors), decoupled=name == "AdamW")
    optimizer = two_groups(b, name, tensors)
    assert optimizer.state_arrays() == {}
    for step in range(4):
        gradients = gradients_of_step(step, dtype)
        optimizer.zero_grad()
        backward(b, tensors, gradients)
        # Learning rates and momentum change with every step, as in the warm-up.
        first, second, momentum = 0.1 / (step + 1), 0.02 * (step + 1), 0.3 + 0.2 * step
        optimizer.step([first, second], momentum)
        reference.step(
            gradients, {"conv.weight": first, "bn.weight": second, "bn.bias": second}, momentum
        )
        assert_tensors(b, tensors, reference.values, STEP_TOLERANCE[dtype])
    state, wanted = optimizer.state_arrays(), reference.state()
    assert set(state) == set(wanted)
    assert_equal(state.pop("updates"), np.array(4))
    for key, array in state.items():
        assert_equal(array, np.asarray(wanted[key]).astype(dtype), STEP_TOLERANCE[dtype])


def moves_by_the_learning_rate(b: Backend, name: str) -> None:
    """Require steps of the size of the learning rate under a constant gradient of any size."""
    for gradient in (3.0, -1e-3):
        x = b.autograd.variable(np.ones(2))
        optimizer = getattr(b.optim, name)([({"x": x}, 0.0)])
        for step in range(1, 4):
            optimizer.zero_grad()
            backward(b, {"x": x}, {"x": np.full(2, gradient)})
            optimizer.step([0.125], 0.9)
            # eps is 1e-5 of the smaller gradient.
            wanted = np.full(2, 1 - 0.125 * step * np.sign(gradient))
            assert_equal(b.ops.to_numpy(x), wanted, tolerance=2e-5)


def resumes_where_it_stopped(b: Backend, name: str) -> None:
    whole = parameters(b)
    train(b, two_groups(b, name, whole), whole, range(4))
    first = parameters(b)
    optimizer = two_groups(b, name, first)
    train(b, optimizer, first, range(2))
    state = optimizer.state_arrays()
    second = {key: b.autograd.variable(array) for key, array in arrays_of(b, first).items()}
    resumed = two_groups(b, name, second)
    resumed.load_state_arrays(state)
    for array in state.values():
        array[...] = 77
    train(b, resumed, second, range(2, 4))
    for key, tensor in whole.items():
        np.testing.assert_array_equal(b.ops.to_numpy(second[key]), b.ops.to_numpy(tensor))


def loses_a_step_without_a_trace(b: Backend, name: str) -> None:
    a_lost_step_leaves_no_trace(b, lambda tensors: two_groups(b, name, tensors))


def starts_afresh_from_no_state(b: Backend, name: str) -> None:
    tensors = parameters(b, "float32")
    optimizer = two_groups(b, name, tensors)
    train(b, optimizer, tensors, range(2))
    moments = {f"bn.bias.{kind}_moment": np.array(0.25) for kind in ("first", "second")}
    optimizer.load_state_arrays({**moments, "updates": np.array(3)})
    state = optimizer.state_arrays()
    assert set(state) == {*moments, "updates"} and state["updates"] == 3
    assert_equal(state["bn.bias.first_moment"], np.array(0.25, "float32"))
    optimizer.load_state_arrays({})
    assert optimizer.state_arrays() == {}


def leaves_unused_parameters_alone(b: Backend, name: str) -> None:
    tensors = parameters(b)
    before = arrays_of(b, tensors)
    optimizer = two_groups(b, name, tensors)
    backward(b, tensors, {"bn.weight": np.ones(4)})
    optimizer.step([0.1, 0.1], 0.9)
    assert_equal(b.ops.to_numpy(tensors["conv.weight"]), before["conv.weight"])
    assert np.all(b.ops.to_numpy(tensors["bn.weight"]) != before["bn.weight"])
    moments = {f"bn.weight.{kind}_moment" for kind in ("first", "second")}
    assert set(optimizer.state_arrays()) == {*moments, "updates"}
    # The steps are counted for all parameters alike.
    reference = Reference(before, decoupled=name == "AdamW")
    reference.step({"bn.weight": np.ones(4)}, {"bn.weight": 0.1}, 0.9)
    optimizer.zero_grad()
    gradients = gradients_of_step(1)
    backward(b, tensors, gradients)
    optimizer.step([0.1, 0.1], 0.9)
    reference.step(gradients, dict.fromkeys(SHAPES, 0.1), 0.9)
    assert_tensors(b, tensors, reference.values, STEP_TOLERANCE["float64"])


def refuses_what_does_not_fit(b: Backend, name: str) -> None:
    tensors = parameters(b)
    before = arrays_of(b, tensors)
    optimizer = two_groups(b, name, tensors)
    for arrays, text in (
        ({"bn.weight.momentum": np.zeros(4)}, "updates"),
        ({"fc.weight.first_moment": np.zeros(4), "updates": np.array(1)}, "fc.weight"),
        ({"bn.weight.second_moment": np.zeros(5), "updates": np.array(1)}, "(5,)"),
    ):
        assert_raises(ValueError, lambda arrays=arrays: optimizer.load_state_arrays(arrays), text)
    backward(b, tensors, gradients_of_step(0))
    assert_raises(ValueError, lambda: optimizer.step([0.1], 0.9), "1 learning rates")
    for momentum in (1.0, -0.1):
        assert_raises(
            ValueError, lambda m=momentum: optimizer.step([0.1, 0.1], m), f"momentum {momentum}"
        )
    assert_tensors(b, tensors, before, 0.0)
    assert optimizer.state_arrays() == {}


@judges("optim.Adam")
def adam_follows_the_formula_in_two_groups(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        follows_the_formula(b, "Adam", dtype)


@judges("optim.AdamW")
def adamw_follows_the_formula_in_two_groups(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        follows_the_formula(b, "AdamW", dtype)


@judges("optim.Adam")
@judges("optim.AdamW")
def both_move_by_the_learning_rate(b: Backend) -> None:
    for name in NAMES:
        moves_by_the_learning_rate(b, name)


@judges("optim.Adam")
@judges("optim.AdamW")
def both_resume_where_they_stopped(b: Backend) -> None:
    for name in NAMES:
        resumes_where_it_stopped(b, name)
        starts_afresh_from_no_state(b, name)


@judges("optim.Adam")
@judges("optim.AdamW")
def both_lose_a_step_without_a_trace(b: Backend) -> None:
    for name in NAMES:
        loses_a_step_without_a_trace(b, name)


@judges("optim.Adam")
@judges("optim.AdamW")
def both_leave_unused_parameters_alone(b: Backend) -> None:
    for name in NAMES:
        leaves_unused_parameters_alone(b, name)


@judges("optim.Adam")
@judges("optim.AdamW")
def both_refuse_what_does_not_fit(b: Backend) -> None:
    for name in NAMES:
        refuses_what_does_not_fit(b, name)
