"""Checks of `contract.Autograd`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.conformance.checks_optim import backward
from tests.conformance.judging import Backend, assert_equal, assert_refused, judges, uniform


@judges("autograd.no_grad")
def values_are_the_same_inside(b: Backend) -> None:
    with b.autograd.no_grad():
        found = b.ops.tensor(np.ones(2)) * 2.0
    assert not found.requires_grad
    assert_equal(b.ops.to_numpy(found), np.full(2, 2.0))


@judges("autograd.no_grad", trains=True)
def records_nothing_inside(b: Backend) -> None:
    x = b.autograd.variable(np.ones(2))
    with b.autograd.no_grad():
        assert not (x * 2.0).requires_grad
    assert (x * 2.0).requires_grad
    try:
        with b.autograd.no_grad():
            raise KeyError
    except KeyError:
        assert (x * 2.0).requires_grad


@judges("autograd.variable")
def a_copy_that_requires_a_gradient(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        for shape in ((2, 3), (), (0,)):
            array = uniform(shape, dtype)
            wanted = array.copy()
            x = b.autograd.variable(array)
            array[...] = 77.0
            assert x.requires_grad and x.grad is None
            assert_equal(b.ops.to_numpy(x), wanted)
    for dtype in ("int64", "bool", "float16"):
        assert_refused(dtype, b.autograd.variable, np.zeros(2, dtype))
    assert_refused("cuda:99", b.autograd.variable, np.zeros(2), "cuda:99")


@judges("autograd.gradients")
def derivatives_by_each_input(b: Backend) -> None:
    x, y = b.autograd.variable(np.array([1.0, 2.0])), b.autograd.variable(np.array(3.0))
    found = b.autograd.gradients(b.ops.sum(x * x * y), [x, y])
    assert_equal(b.ops.to_numpy(found[0]), np.array([6.0, 12.0]))
    assert_equal(b.ops.to_numpy(found[1]), np.array(5.0))
    assert x.grad is None and y.grad is None
    middle = x * 2.0
    (inner,) = b.autograd.gradients(b.ops.sum(middle * middle), [middle])
    assert_equal(b.ops.to_numpy(inner), np.array([4.0, 8.0]))


@judges("autograd.gradients")
def zeros_without_dependence(b: Backend) -> None:
    x = b.autograd.variable(np.ones(2))
    unused = [
        b.autograd.variable(np.full((2, 3), np.inf)),
        b.autograd.variable(np.array(1.0, "float32")),
        b.autograd.variable(np.zeros((0, 2))),
    ]
    found = b.autograd.gradients(b.ops.sum(x), [x, *unused])
    wanted = [np.ones(2), np.zeros((2, 3)), np.zeros((), "float32"), np.zeros((0, 2))]
    for gradient, zeros in zip(found, wanted, strict=True):
        assert_equal(b.ops.to_numpy(gradient), zeros)
    (constant,) = b.autograd.gradients(b.ops.zeros(()), [x])
    assert_equal(b.ops.to_numpy(constant), np.zeros(2))


@judges("autograd.gradients")
def gradients_refuses_what_has_none(b: Backend) -> None:
    x = b.autograd.variable(np.ones(2))
    assert_refused("(2,)", b.autograd.gradients, x * 2.0, [x])
    plain = b.ops.zeros((2,), "float64")
    assert_refused("", b.autograd.gradients, b.ops.sum(x * plain), [plain])


def step(b: Backend, scale: Any, stage: Any) -> Any:
    """Run one step with loss = sum(scale * images * targets)."""
    return b.autograd.value_and_backward(
        lambda images: images * scale,
        lambda predictions, targets: SimpleNamespace(
            total=b.ops.sum(predictions * targets), kept=7
        ),
        b.ops.tensor(np.array([1.0, 2.0])),
        b.ops.tensor(np.array([10.0, 100.0])),
        stage,
    )


@judges("autograd.value_and_backward")
def returns_the_terms_and_adds_gradients(b: Backend) -> None:
    scale = b.autograd.variable(np.array([3.0, 4.0]))
    for repeats in (1, 2):
        terms = step(b, scale, lambda name: nullcontext())
        assert terms.kept == 7
        assert_equal(b.ops.to_numpy(terms.total), np.array(830.0))
        assert_equal(b.ops.to_numpy(scale.grad), np.array([10.0, 200.0]) * repeats)


@judges("autograd.value_and_backward")
def enters_the_stages_one_after_the_other(b: Backend) -> None:
    events: list[str] = []

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        events.append(f"enter {name}")
        yield
        events.append(f"leave {name}")

    step(b, b.autograd.variable(np.array([3.0, 4.0])), stage)
    names = ("forward", "loss", "backward")
    assert events == [f"{verb} {name}" for name in names for verb in ("enter", "leave")]


@judges("autograd.value_and_backward")
def a_stage_lasts_as_long_as_its_work(b: Backend) -> None:
    # Forward and backward cost alike. If work were only queued, the wait would be outside the
    # stages in all five tries; a busy machine spoils only some of them.
    fractions = [fractions_of_forward_and_backward(b) for _ in range(5)]
    assert max(min(pair) for pair in fractions) > 0.05, fractions


def fractions_of_forward_and_backward(b: Backend) -> tuple[float, float]:
    """Return the fractions of the two stages in the time until the gradient can be read."""
    seconds: dict[str, float] = {}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        start = b.device.mark("cpu")
        yield
        seconds[name] = b.device.seconds_between(start, b.device.mark("cpu"))

    def model(x: Any) -> Any:
        for _ in range(10):
            x = b.ops.atan(x)
        return x

    images = b.autograd.variable(np.ones((500, 500)))
    start = time.perf_counter()
    b.autograd.value_and_backward(
        model,
        lambda predictions, targets: SimpleNamespace(total=b.ops.sum(predictions)),
        images,
        None,
        stage,
    )
    b.ops.to_numpy(images.grad)
    total = time.perf_counter() - start
    return seconds["forward"] / total, seconds["backward"] / total


@judges("autograd.clip_gradients")
def scales_to_the_joint_norm(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        x, y, unused = (b.autograd.variable(np.ones(2, dtype)) for _ in range(3))
        tensors = {"x": x, "y": y}
        backward(b, tensors, {"x": np.array([3.0, 0.0], dtype), "y": np.array([0.0, 4.0], dtype)})
        # 5 -> 10 leaves the gradients; both frameworks then divide by norm + 1e-6.
        norm = b.autograd.clip_gradients(iter([x, y, unused]), 10.0)
        assert_equal(b.ops.to_numpy(norm), np.array(5.0, dtype))
        assert_equal(b.ops.to_numpy(x.grad), np.array([3.0, 0.0], dtype))
        norm = b.autograd.clip_gradients([x, y, unused], 1.0)
        assert_equal(b.ops.to_numpy(norm), np.array(5.0, dtype))
        assert_equal(b.ops.to_numpy(x.grad), np.array([0.6, 0.0], dtype), tolerance=1e-6)
        assert_equal(b.ops.to_numpy(y.grad), np.array([0.0, 0.8], dtype), tolerance=1e-6)
        assert unused.grad is None


@judges("autograd.clip_gradients")
def no_gradient_has_norm_zero_and_infinity_shows(b: Backend) -> None:
    x = b.autograd.variable(np.ones(2, "float32"))
    for parameters in ([], [x]):
        norm = b.autograd.clip_gradients(parameters, 1.0)
        assert_equal(b.ops.to_numpy(norm), np.array(0.0, "float32"))
    backward(b, {"x": x}, {"x": np.array([np.inf, 1.0], "float32")})
    assert not np.isfinite(b.ops.to_numpy(b.autograd.clip_gradients([x], 1.0)))


@judges("autograd.clip_gradients")
def finite_gradients_have_a_finite_norm(b: Backend) -> None:
    # The squares of these overflow float32, and float64 has room for them.
    x, y = (b.autograd.variable(np.ones(2, "float32")) for _ in range(2))
    backward(b, {"x": x, "y": y}, {"x": np.float32([3e35, 0]), "y": np.float32([0, -4e35])})
    norm = b.autograd.clip_gradients([x, y], 10.0)
    assert_equal(b.ops.to_numpy(norm), np.array(5e35, "float32"), tolerance=1e-6)
    assert_equal(b.ops.to_numpy(x.grad), np.array([6.0, 0.0], "float32"), tolerance=1e-6)
    assert_equal(b.ops.to_numpy(y.grad), np.array([0.0, -8.0], "float32"), tolerance=1e-6)


@judges("autograd.clip_gradients")
def a_gradient_that_is_not_finite_shows_in_the_norm(b: Backend) -> None:
    for value in (np.inf, -np.inf, np.nan):
        x, y = (b.autograd.variable(np.ones(2, "float32")) for _ in range(2))
        backward(b, {"x": x, "y": y}, {"x": np.float32([1e30, value]), "y": np.float32([1, 2])})
        assert not np.isfinite(b.ops.to_numpy(b.autograd.clip_gradients([x, y], 10.0)))
