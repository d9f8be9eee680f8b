"""Checks of `contract.Optim` and `contract.Optimizer`, against the formulas in NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.judging import (
    CHECKS,
    FLOATS,
    Backend,
    Check,
    assert_equal,
    assert_refused,
    judges,
    learn,
    uniform,
)

STEP_TOLERANCE = {"float32": 1e-6, "float64": 1e-14}  # rounding of a few steps
SHAPES = {"conv.weight": (2, 3), "bn.weight": (4,), "bn.bias": ()}
DECAYS = {"conv.weight": 0.1, "bn.weight": 0.0, "bn.bias": 0.0}
# The state of a parameter, by the name of the optimizer.
KINDS = {"SGD": ("momentum",)} | dict.fromkeys(("Adam", "AdamW"), ("first_moment", "second_moment"))


def judges_each(*methods: str) -> Callable[[Any], Any]:
    """Register a check of a backend and a name, for each optimizer and for methods of SGD."""

    def register(function: Callable[[Backend, str], None]) -> Callable[[Backend, str], None]:
        judged = [(f"optim.{name}", name) for name in KINDS]
        judged += [(f"Optimizer.{method}", "SGD") for method in methods]
        for path, name in judged:
            CHECKS.append(Check(path, function.__name__, lambda b, name=name: function(b, name)))
        return function

    return register


def rounded(constant: float) -> float:
    return float(np.float32(constant))


class Reference:
    """The optimizers as the contract writes them, their constants rounded to float32."""

    def __init__(self, name: str, values: dict[str, np.ndarray]) -> None:
        self.name = name
        self.values: dict[str, Any] = {n: value.astype("float64") for n, value in values.items()}
        self.state: dict[str, Any] = {}
        self.updates = 0

    def step(
        self, gradients: dict[str, np.ndarray], rates: dict[str, float], momentum: float
    ) -> None:
        self.updates += 1
        for name, g in gradients.items():
            rate, decay, w = rounded(rates[name]), rounded(DECAYS[name]), self.values[name]
            if self.name == "AdamW":
                w = w * (1 - rate * decay)
            else:
                g = g + decay * w
            change = self.sgd if self.name == "SGD" else self.adam
            self.values[name] = w - change(name, g, rate, rounded(momentum))

    def sgd(self, name: str, g: Any, rate: float, momentum: float) -> Any:
        if momentum == 0:
            return rate * g
        velocity = momentum * self.state.get(f"{name}.momentum", 0.0) + g
        self.state[f"{name}.momentum"] = velocity
        return rate * (g + momentum * velocity)

    def adam(self, name: str, g: Any, rate: float, beta1: float) -> Any:
        beta2 = rounded(0.999)
        correction = np.sqrt(1 - beta2**self.updates)
        m = self.average(f"{name}.first_moment", g, beta1)
        v = self.average(f"{name}.second_moment", g * g, beta2)
        eps = rounded(rounded(1e-8) * correction)
        return rounded(rate * correction / (1 - beta1**self.updates)) * m / (np.sqrt(v) + eps)

    def average(self, key: str, new: Any, beta: float) -> Any:
        self.state[key] = beta * self.state.get(key, 0.0) + (1 - beta) * new
        return self.state[key]


def parameters(b: Backend, dtype: str = "float64") -> dict[str, Any]:
    return {
        name: b.autograd.variable(uniform(shape, dtype, seed=seed))
        for seed, (name, shape) in enumerate(SHAPES.items())
    }


def two_groups(b: Backend, name: str, tensors: dict[str, Any]) -> Any:
    """Return the weights in a group with decay, the rest in a group without."""
    weights = {"conv.weight": tensors["conv.weight"]}
    others = {other: tensors[other] for other in ("bn.weight", "bn.bias")}
    return getattr(b.optim, name)([(weights, 0.1), (others, 0.0)])


def backward(b: Backend, tensors: dict[str, Any], gradients: dict[str, np.ndarray]) -> None:
    """Add gradients to the tensors by a loss that has them."""
    terms = [b.ops.sum(tensors[name] * b.ops.tensor(g)) for name, g in gradients.items()]
    ones = np.ones(len(terms), b.ops.dtype_of(terms[0]))
    learn(b, lambda _: b.ops.stack(terms), b.ops.zeros((1,)), b.ops.tensor(ones))


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


def arrays_of(b: Backend, tensors: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: b.ops.to_numpy(x) for name, x in tensors.items()}


def assert_tensors(
    b: Backend, tensors: dict[str, Any], wanted: dict[str, Any], tolerance: float
) -> None:
    for name, found in arrays_of(b, tensors).items():
        assert_equal(found, np.asarray(wanted[name]).astype(found.dtype), tolerance)


@judges_each("step")
def follows_the_formula_in_two_groups(b: Backend, name: str) -> None:
    for dtype in FLOATS:
        tensors = parameters(b, dtype)
        reference, optimizer = Reference(name, arrays_of(b, tensors)), two_groups(b, name, tensors)
        assert optimizer.state_arrays() == {}
        for step in range(4):
            gradients = gradients_of_step(step, dtype)
            optimizer.zero_grad()
            backward(b, tensors, gradients)
            # Learning rates and momentum change with every step, as in the warm-up.
            first, second, momentum = 0.1 / (step + 1), 0.02 * (step + 1), 0.3 + 0.2 * step
            optimizer.step([first, second], momentum)
            rates = {"conv.weight": first, "bn.weight": second, "bn.bias": second}
            reference.step(gradients, rates, momentum)
            assert_tensors(b, tensors, reference.values, STEP_TOLERANCE[dtype])
        state = optimizer.state_arrays()
        if name != "SGD":
            assert_equal(state.pop("updates"), np.array(4))
        assert set(state) == set(reference.state)
        for key, array in state.items():
            wanted = np.asarray(reference.state[key]).astype(dtype)
            assert_equal(array, wanted, STEP_TOLERANCE[dtype])


@judges("optim.SGD")
@judges("Optimizer.step")
def momentum_zero_is_plain_descent_with_decay(b: Backend) -> None:
    tensors, gradients = parameters(b), gradients_of_step(0)
    before, optimizer = arrays_of(b, tensors), two_groups(b, "SGD", tensors)
    backward(b, tensors, gradients)
    optimizer.step([0.5, 0.5], 0.0)
    wanted = {n: before[n] - 0.5 * (gradients[n] + rounded(DECAYS[n]) * before[n]) for n in before}
    assert_tensors(b, tensors, wanted, STEP_TOLERANCE["float64"])
    assert optimizer.state_arrays() == {}


@judges("optim.Adam")
@judges("optim.AdamW")
def both_move_by_the_learning_rate(b: Backend) -> None:
    """Require steps of the size of the learning rate under a constant gradient of any size."""
    for name in ("Adam", "AdamW"):
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


@judges_each("step")
def leaves_a_parameter_without_gradient_alone(b: Backend, name: str) -> None:
    tensors = parameters(b)
    before, optimizer = arrays_of(b, tensors), two_groups(b, name, tensors)
    reference = Reference(name, before)
    for gradients in ({"bn.weight": np.ones(4)}, gradients_of_step(1)):
        optimizer.zero_grad()
        backward(b, tensors, gradients)
        optimizer.step([0.1, 0.1], 0.9)
        reference.step(gradients, dict.fromkeys(SHAPES, 0.1), 0.9)
        # The steps of Adam are counted for all parameters alike.
        assert_tensors(b, tensors, reference.values, STEP_TOLERANCE["float64"])
        assert set(optimizer.state_arrays()) - {"updates"} == set(reference.state)


@judges_each("step", "uncount_step")
def a_lost_step_leaves_no_trace(b: Backend, name: str) -> None:
    """Check a run with lost steps, the first among them, beside one without."""
    for dtype in FLOATS:
        runs = []
        for lost_steps in ((), (0, 2, 3)):
            tensors = parameters(b, dtype)
            optimizer, numbers = two_groups(b, name, tensors), iter(range(3))
            for step in range(6 if lost_steps else 3):
                is_lost = step in lost_steps
                number = 3 if is_lost else next(numbers)
                gradients = gradients_of_step(number, dtype)
                if is_lost:
                    gradients["conv.weight"][0, 0] = np.nan
                optimizer.zero_grad()
                backward(b, tensors, gradients)
                before = arrays_of(b, tensors)
                lost = (b.full((), float(is_lost)),) if lost_steps else ()
                optimizer.step([0.1 / (number + 1), 0.05], 0.8 + 0.05 * number, *lost)
                if is_lost:
                    optimizer.uncount_step()
                    for key, array in before.items():
                        np.testing.assert_array_equal(b.ops.to_numpy(tensors[key]), array)
            runs.append({**arrays_of(b, tensors), **optimizer.state_arrays()})
        wanted, found = runs
        assert set(found) == set(wanted)
        for key, array in wanted.items():
            np.testing.assert_array_equal(found[key], array)


@judges_each("zero_grad")
def clears_gradients(b: Backend, name: str) -> None:
    tensors = parameters(b)
    optimizer = two_groups(b, name, tensors)
    optimizer.zero_grad()
    for step in range(2):
        backward(b, tensors, gradients_of_step(step))
        for key, gradient in gradients_of_step(step).items():
            assert_equal(b.ops.to_numpy(tensors[key].grad), gradient)
        optimizer.zero_grad()
        for tensor in tensors.values():
            assert tensor.grad is None or not np.any(b.ops.to_numpy(tensor.grad))


@judges_each("state_arrays", "load_state_arrays")
def resumed_training_equals_uninterrupted_training(b: Backend, name: str) -> None:
    whole, first = parameters(b), parameters(b)
    train(b, two_groups(b, name, whole), whole, range(4))
    optimizer = two_groups(b, name, first)
    train(b, optimizer, first, range(2))
    state = optimizer.state_arrays()
    copies = {key: array.copy() for key, array in state.items()}
    second = {key: b.autograd.variable(array) for key, array in arrays_of(b, first).items()}
    resumed = two_groups(b, name, second)
    resumed.load_state_arrays(state)
    for array in state.values():
        array[...] = 77
    for key, array in optimizer.state_arrays().items():
        assert_equal(array, copies[key])
    train(b, resumed, second, range(2, 4))
    for key, tensor in whole.items():
        np.testing.assert_array_equal(b.ops.to_numpy(second[key]), b.ops.to_numpy(tensor))


def state_of(name: str, parameter: str, value: Any) -> dict[str, np.ndarray]:
    state = {f"{parameter}.{kind}": np.asarray(value, "float64") for kind in KINDS[name]}
    return state if name == "SGD" else {**state, "updates": np.array(3)}


@judges_each("load_state_arrays")
def casts_and_forgets_what_is_absent(b: Backend, name: str) -> None:
    tensors = parameters(b, "float32")
    optimizer = two_groups(b, name, tensors)
    train(b, optimizer, tensors, range(2))
    optimizer.load_state_arrays(state_of(name, "bn.weight", np.full(4, 0.5)))
    wanted = state_of(name, "bn.bias", 0.25)
    optimizer.load_state_arrays(wanted)
    state = optimizer.state_arrays()
    assert set(state) == set(wanted)
    for key, array in wanted.items():
        assert_equal(state[key], array if key == "updates" else array.astype("float32"))
    optimizer.load_state_arrays({})
    assert optimizer.state_arrays() == {}


@judges_each("load_state_arrays", "step")
def refuses_what_does_not_fit(b: Backend, name: str) -> None:
    tensors = parameters(b)
    before, optimizer = arrays_of(b, tensors), two_groups(b, name, tensors)
    wrong = [
        (state_of(name, "fc.weight", np.zeros(4)), "fc.weight"),
        (state_of(name, "bn.weight", np.zeros(5)), "(5,)"),
        ({**state_of(name, "bn.bias", 0.0), "bn.weight": np.zeros(4)}, "bn.weight"),
    ]
    if name != "SGD":
        wrong.append(({"bn.bias.first_moment": np.array(0.0)}, "updates"))
    for arrays, text in wrong:
        assert_refused(text, optimizer.load_state_arrays, arrays)
    backward(b, tensors, gradients_of_step(0))
    assert_refused("1 learning rates", optimizer.step, [0.1], 0.9)
    for momentum in (1.0, -0.1) if name != "SGD" else ():
        assert_refused(f"momentum {momentum}", optimizer.step, [0.1, 0.1], momentum)
    assert_tensors(b, tensors, before, 0.0)
    assert optimizer.state_arrays() == {}


@judges("optim.ema_update_")
def averages_in_place_and_keeps_what_a_lost_update_would_move(b: Backend) -> None:
    for dtype in FLOATS:
        arrays = [uniform(shape, dtype, seed=i) for i, shape in enumerate([(3,), (2, 2), (), (0,)])]
        averages = [b.ops.tensor(array) for array in arrays]
        values = [b.ops.tensor(np.asarray(array * 3.0 + 1.0).astype(dtype)) for array in arrays]
        for lost, share in (((b.full((), 1),), 0.0), ((b.full((), 0),), 0.1), ((), 0.19)):
            b.optim.ema_update_(averages, values, 0.9, *lost)
            for average, array in zip(averages, arrays, strict=True):
                exact = array.astype("float64")
                wanted = (1 - share) * exact + share * (exact * 3.0 + 1.0)
                assert_equal(b.ops.to_numpy(average), np.asarray(wanted).astype(dtype))


@judges("optim.ema_update_")
def changes_the_module_that_owns_the_tensors(b: Backend) -> None:
    module = b.nn.BatchNorm2d(2)
    averages = b.nn.state_tensors(b.nn.frozen_copy(module))
    names = ("weight", "bias")
    values = [b.variable(np.full(2, 5.0, "float32")) for _ in names]
    b.optim.ema_update_([averages[name] for name in names], values, 0.5)
    assert_equal(b.ops.to_numpy(averages["weight"]), np.full(2, 3.0, "float32"))
    own = b.nn.state_tensors(module)
    b.optim.ema_update_([own[name] for name in names], values, 0.5)
    assert_equal(b.nn.state_arrays(module)["bias"], np.full(2, 2.5, "float32"))
    assert all(parameter.requires_grad for _, parameter in b.nn.named_parameters(module))


@judges("optim.ema_update_")
def an_average_of_equals_stays_bit_for_bit(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        array = uniform((1000,), dtype)
        average, value = b.ops.tensor(array), b.ops.tensor(array)
        for decay in (0.0005, 0.3, 0.9999):
            b.optim.ema_update_([average], [value], decay)
        np.testing.assert_array_equal(b.ops.to_numpy(average), array)


@judges("optim.ema_update_")
def accepts_none_and_refuses_unequal_numbers(b: Backend) -> None:
    b.optim.ema_update_([], [], 0.5)
    x = b.zeros((2,))
    assert_refused("1 values", b.optim.ema_update_, [x, x], [x], 0.5)
