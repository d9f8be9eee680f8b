"""Checks of `contract.MultiTensor`: those of the plain updates, and what it promises besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.conformance import checks_adam, checks_network, checks_optim  # noqa: F401
from tests.conformance.checks_adam import two_groups
from tests.conformance.checks_optim import (
    STEP_TOLERANCE,
    assert_tensors,
    backward,
    gradients_of_step,
    parameters,
)
from tests.conformance.judging import (
    CHECKS,
    Backend,
    Check,
    Overlay,
    assert_equal,
    judges,
)

OPTIMIZERS = ("SGD", "Adam", "AdamW")
# The plain names that have a name in `multi_tensor` with the same promises.
PLAIN = {
    "multi_tensor.SGD": ("optim.SGD", "Optimizer."),
    "multi_tensor.Adam": ("optim.Adam",),
    "multi_tensor.AdamW": ("optim.AdamW",),
    "multi_tensor.ema_update_": ("ops.ema_update_",),
}


def is_plain(name: str, plain: str) -> bool:
    return name.startswith(plain) if plain.endswith(".") else name == plain


def in_place_of_the_plain(run: Callable[[Backend], None]) -> Callable[[Backend], None]:
    """Make the same check of the updates of `multi_tensor`."""

    def check(b: Backend) -> None:
        other = Backend()
        other.optim = b.multi_tensor
        other.ops = Overlay(b.ops, "ema_update_", b.multi_tensor.ema_update_)
        run(other)

    return check


def checks_of_the_plain() -> Iterator[Check]:
    for name, plain_names in PLAIN.items():
        for check in CHECKS:
            if any(is_plain(check.name, plain) for plain in plain_names):
                yield Check(name, check.label, in_place_of_the_plain(check.run))


CHECKS.extend(list(checks_of_the_plain()))


def state_of_either_opens_in_the_other(b: Backend, name: str) -> None:
    """Check a run that changes between the plain and these updates at every step."""
    other = Overlay(b, "optim", b.multi_tensor)
    whole, changing = parameters(b), parameters(b)
    reference, state = two_groups(b, name, whole), {}
    for step in range(4):
        optimizer = two_groups((b, other)[step % 2], name, changing)
        optimizer.load_state_arrays(state)
        for tensors, updated in ((whole, reference), (changing, optimizer)):
            updated.zero_grad()
            backward(b, tensors, gradients_of_step(step))
            updated.step([0.1 / (step + 1), 0.05], 0.8 + 0.05 * step)
        state = optimizer.state_arrays()
        assert set(state) == set(reference.state_arrays())
    for key, array in reference.state_arrays().items():
        assert_equal(state[key], array, STEP_TOLERANCE["float64"])
    arrays = {key: b.ops.to_numpy(x) for key, x in whole.items()}
    assert_tensors(b, changing, arrays, STEP_TOLERANCE["float64"])


def judge_an_optimizer(name: str) -> None:
    @judges(f"multi_tensor.{name}")
    def its_state_and_the_plain_one_are_interchangeable(b: Backend) -> None:
        state_of_either_opens_in_the_other(b, name)


for name in OPTIMIZERS:
    judge_an_optimizer(name)


@judges("multi_tensor.ema_update_")
def averages_what_was_placed_again(b: Backend) -> None:
    """Check tensors that have other memory since an earlier EMA update."""
    module = b.nn.Conv2d(2, 3, 1)
    average = b.nn.frozen_copy(module)
    b.nn.load_state_arrays(average, {n: x * 0 for n, x in b.nn.state_arrays(module).items()})
    for dtype in ("float64", "float32"):
        for placed in (module, average):
            b.nn.place(placed, "cpu", "float64")
            b.nn.place(placed, "cpu", dtype)
        pair = (b.nn.float_tensors(average)(), b.nn.float_tensors(module)())
        b.multi_tensor.ema_update_(*pair, 0.5)
    weights = b.nn.state_arrays(module)["weight"]
    assert_equal(b.nn.state_arrays(average)["weight"], (0.75 * weights).astype("float32"))


@judges("multi_tensor.ema_update_")
def averages_what_was_packed_since(b: Backend) -> None:
    """Check modules that are packed after an EMA update, then get another tensor."""
    module = b.nn.Conv2d(2, 3, 1)
    average = b.nn.frozen_copy(module)
    b.nn.load_state_arrays(average, {n: x * 0 for n, x in b.nn.state_arrays(module).items()})
    values, averages = b.nn.float_tensors(module), b.nn.float_tensors(average)
    b.multi_tensor.ema_update_(averages(), values(), 0.5)
    for packed in (module, average):
        b.nn.pack(packed)
        b.multi_tensor.ema_update_(averages(), values(), 0.5)
    arrays = b.nn.state_arrays(module)
    for name, array in b.nn.state_arrays(average).items():
        assert_equal(array, (0.875 * arrays[name]).astype("float32"), 1e-6)
    weight, bias = averages()
    other = b.ops.tensor(b.ops.to_numpy(bias))
    b.multi_tensor.ema_update_([weight, other], values(), 0.5)
    assert_equal(b.ops.to_numpy(bias), (0.875 * arrays["bias"]).astype("float32"), 1e-6)
    assert_equal(b.ops.to_numpy(other), (0.9375 * arrays["bias"]).astype("float32"), 1e-6)
    assert_equal(b.ops.to_numpy(weight), (0.9375 * arrays["weight"]).astype("float32"), 1e-6)


@judges("multi_tensor.describe")
def one_line_that_names_optimizer_and_device(b: Backend) -> None:
    for name in OPTIMIZERS:
        for device in ("cpu", "cuda:0"):
            line = b.multi_tensor.describe(name, device)
            assert name in line and "\n" not in line
            assert ("CPU" if device == "cpu" else device) in line
