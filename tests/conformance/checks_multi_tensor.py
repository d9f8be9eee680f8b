"""Checks of `contract.MultiTensor`: those of the plain updates, and what it promises besides."""

from collections.abc import Callable
from functools import partial

from tests.conformance.checks_optim import (
    KINDS,
    STEP_TOLERANCE,
    arrays_of,
    assert_tensors,
    backward,
    gradients_of_step,
    parameters,
    two_groups,
)
from tests.conformance.judging import CHECKS, Backend, Check, Overlay, assert_equal, judges

# The plain names that have a name in `multi_tensor` with the same promises.
PLAIN = {f"multi_tensor.{name}": f"optim.{name}" for name in KINDS}
PLAIN["multi_tensor.ema_update_"] = "optim.ema_update_"


def in_place_of_the_plain(run: Callable[[Backend], None], b: Backend) -> None:
    """Make the same check of the updates of `multi_tensor`."""
    other = Backend()
    other.optim = b.multi_tensor
    run(other)


CHECKS += [
    Check(name, check.label, partial(in_place_of_the_plain, check.run))
    for name, plain in PLAIN.items()
    for check in CHECKS
    if check.name == plain
]


def its_state_and_the_plain_one_are_interchangeable(name: str, b: Backend) -> None:
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
    assert_tensors(b, changing, arrays_of(b, whole), STEP_TOLERANCE["float64"])


for name in KINDS:
    run = partial(its_state_and_the_plain_one_are_interchangeable, name)
    CHECKS.append(Check(f"multi_tensor.{name}", "opens the plain state, and its own there", run))


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
    for tensor, name, factor in (
        (bias, "bias", 0.875),
        (other, "bias", 0.9375),
        (weight, "weight", 0.9375),
    ):
        assert_equal(b.ops.to_numpy(tensor), (factor * arrays[name]).astype("float32"), 1e-6)


@judges("multi_tensor.describe")
def one_line_that_names_optimizer_and_device(b: Backend) -> None:
    for name in KINDS:
        for device in ("cpu", "cuda:0"):
            line = b.multi_tensor.describe(name, device)
            assert name in line and "\n" not in line
            assert ("CPU" if device == "cpu" else device) in line
