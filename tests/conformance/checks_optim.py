"""Checks of `contract.Optim` and `contract.Optimizer`, against the formula in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.conformance.judging import Backend, assert_equal, assert_raises, judges, uniform

STEP_TOLERANCE = {"float32": 1e-6, "float64": 1e-14}  # rounding of a few steps
SHAPES = {"conv.weight": (2, 3), "bn.weight": (4,), "bn.bias": ()}


class Reference:
    """SGD with Nesterov momentum, as the contract writes it, its constants rounded to float32."""

    def __init__(self, values: dict[str, np.ndarray], decays: dict[str, float]) -> None:
        self.values = {name: value.astype("float64") for name, value in values.items()}
        self.decays = {name: float(np.float32(decay)) for name, decay in decays.items()}
        self.velocity: dict[str, np.ndarray] = {}

    def step(
        self, gradients: dict[str, np.ndarray], rates: dict[str, float], momentum: float
    ) -> None:
        momentum = float(np.float32(momentum))
        for name, gradient in gradients.items():
            g = gradient + self.decays[name] * self.values[name]
            if momentum > 0:
                self.velocity[name] = momentum * self.velocity.get(name, 0.0) + g
                g = g + momentum * self.velocity[name]
            self.values[name] = self.values[name] - float(np.float32(rates[name])) * g


def parameters(b: Backend, dtype: str = "float64") -> dict[str, Any]:
    return {
        name: b.autograd.variable(uniform(shape, dtype, seed=seed))
        for seed, (name, shape) in enumerate(SHAPES.items())
    }


def two_groups(b: Backend, tensors: dict[str, Any]) -> Any:
    """Return the weights in a group with decay, the rest in a group without."""
    weights = {"conv.weight": tensors["conv.weight"]}
    others = {name: tensors[name] for name in ("bn.weight", "bn.bias")}
    return b.optim.SGD([(weights, 0.1), (others, 0.0)])


def backward(b: Backend, tensors: dict[str, Any], gradients: dict[str, np.ndarray]) -> None:
    """Add gradients to the tensors by a loss that has them."""
    terms = [b.ops.sum(tensors[name] * b.ops.tensor(g)) for name, g in gradients.items()]
    total = b.ops.sum(b.ops.stack(terms))
    b.autograd.value_and_backward(
        lambda images: images,
        lambda predictions, targets: SimpleNamespace(total=total),
        b.ops.zeros((1,)),
        None,
        lambda name: nullcontext(),
    )


def gradients_of_step(step: int, dtype: str = "float64") -> dict[str, np.ndarray]:
    return {
        name: uniform(shape, dtype, seed=100 * step + seed)
        for seed, (name, shape) in enumerate(SHAPES.items())
    }


def train(b: Backend, optimizer: Any, tensors: dict[str, Any], steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        backward(b, tensors, gradients_of_step(step))
        optimizer.step([0.1 / (step + 1), 0.05], 0.8 + 0.05 * step)


def assert_tensors(
    b: Backend, tensors: dict[str, Any], wanted: dict[str, Any], tolerance: float
) -> None:
    for name, tensor in tensors.items():
        found = b.ops.to_numpy(tensor)
        assert_equal(found, np.asarray(wanted[name]).astype(found.dtype), tolerance)


@judges("optim.SGD")
@judges("Optimizer.step")
def follows_the_formula_in_two_groups(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        tensors = parameters(b, dtype)
        reference = Reference(
            {name: b.ops.to_numpy(x) for name, x in tensors.items()},
            {"conv.weight": 0.1, "bn.weight": 0.0, "bn.bias": 0.0},
        )
        optimizer = two_groups(b, tensors)
        for step in range(4):
            gradients = gradients_of_step(step, dtype)
            optimizer.zero_grad()
            backward(b, tensors, gradients)
            # Learning rates and momentum change with every step, as in the warm-up.
            first, second, momentum = 0.1 / (step + 1), 0.02 * (step + 1), 0.8 + 0.03 * step
            optimizer.step([first, second], momentum)
            rates = {"conv.weight": first, "bn.weight": second, "bn.bias": second}
            reference.step(gradients, rates, momentum)
            assert_tensors(b, tensors, reference.values, STEP_TOLERANCE[dtype])
        velocity = {f"{name}.momentum": v for name, v in reference.velocity.items()}
        state = optimizer.state_arrays()
        assert set(state) == set(velocity)
        for name, array in state.items():
            assert_equal(array, np.asarray(velocity[name]).astype(dtype), STEP_TOLERANCE[dtype])


@judges("optim.SGD")
@judges("Optimizer.step")
def momentum_zero_is_plain_descent_with_decay(b: Backend) -> None:
    tensors = parameters(b)
    before = {name: b.ops.to_numpy(x) for name, x in tensors.items()}
    optimizer = two_groups(b, tensors)
    gradients = gradients_of_step(0)
    backward(b, tensors, gradients)
    optimizer.step([0.5, 0.5], 0.0)
    decays = {"conv.weight": float(np.float32(0.1)), "bn.weight": 0.0, "bn.bias": 0.0}
    wanted = {n: before[n] - 0.5 * (gradients[n] + decays[n] * before[n]) for n in before}
    assert_tensors(b, tensors, wanted, STEP_TOLERANCE["float64"])
    assert optimizer.state_arrays() == {}


@judges("Optimizer.step")
def leaves_a_parameter_without_gradient_alone(b: Backend) -> None:
    tensors = parameters(b)
    before = {name: b.ops.to_numpy(x) for name, x in tensors.items()}
    optimizer = two_groups(b, tensors)
    backward(b, tensors, {"bn.weight": np.ones(4)})
    optimizer.step([0.1, 0.1], 0.9)
    assert_equal(b.ops.to_numpy(tensors["conv.weight"]), before["conv.weight"])
    assert np.all(b.ops.to_numpy(tensors["bn.weight"]) != before["bn.weight"])
    assert set(optimizer.state_arrays()) == {"bn.weight.momentum"}


@judges("Optimizer.step")
def needs_a_learning_rate_for_each_group(b: Backend) -> None:
    optimizer = two_groups(b, parameters(b))
    assert_raises(ValueError, lambda: optimizer.step([0.1], 0.9), "1 learning rates")


def a_lost_step_leaves_no_trace(b: Backend, groups: Callable[[dict[str, Any]], Any]) -> None:
    """Check a run with lost steps, the first among them, beside one without.

    groups: makes the optimizer of tensors by name.
    """
    for dtype in ("float32", "float64"):
        runs = []
        for lost_steps in ((), (0, 2, 3)):
            tensors = parameters(b, dtype)
            optimizer, numbers = groups(tensors), iter(range(3))
            for step in range(6 if lost_steps else 3):
                is_lost = step in lost_steps
                number = 3 if is_lost else next(numbers)
                gradients = gradients_of_step(number, dtype)
                if is_lost:
                    gradients["conv.weight"][0, 0] = np.nan
                optimizer.zero_grad()
                backward(b, tensors, gradients)
                before = {name: b.ops.to_numpy(x) for name, x in tensors.items()}
                lost = (b.full((), float(is_lost)),) if lost_steps else ()
                optimizer.step([0.1 / (number + 1), 0.05], 0.8 + 0.05 * number, *lost)
                if is_lost:
                    optimizer.uncount_step()
                    for name, array in before.items():
                        np.testing.assert_array_equal(b.ops.to_numpy(tensors[name]), array)
            runs.append(({n: b.ops.to_numpy(x) for n, x in tensors.items()}, optimizer))
        (wanted, plain), (found, left_out) = runs
        for name, array in {**wanted, **plain.state_arrays()}.items():
            np.testing.assert_array_equal({**found, **left_out.state_arrays()}[name], array)
        assert set(left_out.state_arrays()) == set(plain.state_arrays())


@judges("Optimizer.step")
@judges("Optimizer.uncount_step")
def a_lost_step_of_sgd_leaves_no_trace(b: Backend) -> None:
    a_lost_step_leaves_no_trace(b, lambda tensors: two_groups(b, tensors))


@judges("Optimizer.zero_grad")
def clears_gradients(b: Backend) -> None:
    tensors = parameters(b)
    optimizer = two_groups(b, tensors)
    optimizer.zero_grad()
    for step in range(2):
        backward(b, tensors, gradients_of_step(step))
        for name, gradient in gradients_of_step(step).items():
            assert_equal(b.ops.to_numpy(tensors[name].grad), gradient)
        optimizer.zero_grad()
        for tensor in tensors.values():
            assert tensor.grad is None or not np.any(b.ops.to_numpy(tensor.grad))


@judges("Optimizer.state_arrays")
def copies_of_the_momentum_by_parameter(b: Backend) -> None:
    tensors = parameters(b)
    optimizer = two_groups(b, tensors)
    assert optimizer.state_arrays() == {}
    backward(b, tensors, gradients_of_step(0))
    optimizer.step([0.0, 0.0], 0.9)
    state = optimizer.state_arrays()
    assert set(state) == {f"{name}.momentum" for name in SHAPES}
    assert_equal(state["bn.weight.momentum"], gradients_of_step(0)["bn.weight"])
    state["bn.weight.momentum"][...] = 77.0
    assert_equal(optimizer.state_arrays()["bn.weight.momentum"], gradients_of_step(0)["bn.weight"])


@judges("Optimizer.load_state_arrays")
def resumed_training_equals_uninterrupted_training(b: Backend) -> None:
    whole = parameters(b)
    train(b, two_groups(b, whole), whole, range(4))
    first = parameters(b)
    optimizer = two_groups(b, first)
    train(b, optimizer, first, range(2))
    state = optimizer.state_arrays()
    second = {name: b.autograd.variable(b.ops.to_numpy(x)) for name, x in first.items()}
    resumed = two_groups(b, second)
    resumed.load_state_arrays(state)
    for array in state.values():
        array[...] = 77.0
    train(b, resumed, second, range(2, 4))
    for name, tensor in whole.items():
        np.testing.assert_array_equal(b.ops.to_numpy(second[name]), b.ops.to_numpy(tensor))


@judges("Optimizer.load_state_arrays")
def casts_and_forgets_what_is_absent(b: Backend) -> None:
    tensors = parameters(b, "float32")
    optimizer = two_groups(b, tensors)
    optimizer.load_state_arrays({"bn.weight.momentum": np.full(4, 0.5)})
    optimizer.load_state_arrays({"bn.bias.momentum": np.array(0.25)})
    state = optimizer.state_arrays()
    assert list(state) == ["bn.bias.momentum"]
    assert_equal(state["bn.bias.momentum"], np.array(0.25, "float32"))


@judges("Optimizer.load_state_arrays")
def refuses_state_of_another_model(b: Backend) -> None:
    optimizer = two_groups(b, parameters(b))
    for arrays, text in (
        ({"fc.weight.momentum": np.zeros(4)}, "fc.weight.momentum"),
        ({"bn.weight": np.zeros(4)}, "bn.weight"),
        ({"bn.weight.momentum": np.zeros(5)}, "(5,)"),
    ):
        assert_raises(ValueError, lambda arrays=arrays: optimizer.load_state_arrays(arrays), text)
    assert optimizer.state_arrays() == {}
