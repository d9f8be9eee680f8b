"""Checks of `contract.Autograd` and `contract.Amp`, and of what a fast step needs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
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


@judges("autograd.recording")
def records_where_the_caller_does_not(b: Backend) -> None:
    x = b.autograd.variable(np.ones(2))
    with b.autograd.no_grad():
        with b.autograd.recording():
            assert (x * 2.0).requires_grad
        assert not (x * 2.0).requires_grad


@judges("autograd.no_grad", trains=True)
@judges("autograd.recording")
def computes_without_the_autocast_of_the_caller(b: Backend) -> None:
    x = b.ops.tensor(np.ones((2, 2), "float32"), "cpu")
    for context in (b.autograd.no_grad, b.autograd.recording):
        for dtype in b.amp.supported("cpu"):
            with b.amp.autocast("cpu", dtype):
                with context():
                    assert b.ops.dtype_of(b.ops.matmul(x, x)) == "float32"
                assert b.ops.dtype_of(b.ops.matmul(x, x)) == dtype


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


HALF_PRECISIONS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # and the rounding of one product


@judges("amp.supported")
def names_half_precisions_of_a_device_that_is_there(b: Backend) -> None:
    found = b.amp.supported("cpu")
    assert isinstance(found, tuple) and set(found) <= set(HALF_PRECISIONS), found
    assert_refused("cuda:99", b.amp.supported, "cuda:99")


@judges("amp.preferred")
def prefers_float32_on_a_cpu(b: Backend) -> None:
    assert b.amp.preferred("cpu") == "float32"
    assert_refused("cuda:99", b.amp.preferred, "cuda:99")


@judges("amp.autocast")
def convolves_in_half_precision_with_float32_weights(b: Backend) -> None:
    images = uniform((1, 3, 4, 4), "float32")
    layer = b.nn.Conv2d(3, 2, 1, bias=False)
    weight = uniform((2, 3, 1, 1), "float32", seed=1)
    b.nn.load_state_arrays(layer, {"weight": weight})
    wanted = np.einsum("oi,bihw->bohw", weight[:, :, 0, 0], images)
    for dtype in b.amp.supported("cpu"):
        with b.amp.autocast("cpu", dtype):
            y = layer(b.ops.tensor(images))
            assert b.ops.dtype_of(b.ops.cat([y, y])) == dtype
        assert b.ops.dtype_of(y) == dtype
        # Two roundings of the factors and one of the sum, of up to three products of up to 4.
        y = b.ops.cast(y, "float32")
        np.testing.assert_allclose(b.ops.to_numpy(y), wanted, atol=16 * HALF_PRECISIONS[dtype])
        (gradient,) = b.autograd.gradients(b.ops.sum(y), [layer.weight])
        sums = np.broadcast_to(images.sum(axis=(0, 2, 3)), (2, 3)).reshape(2, 3, 1, 1)
        assert b.ops.dtype_of(gradient) == "float32"
        # 16 addends of up to 2, each rounded.
        np.testing.assert_allclose(b.ops.to_numpy(gradient), sums, atol=64 * HALF_PRECISIONS[dtype])


@judges("amp.autocast")
def float32_changes_nothing_and_others_are_refused(b: Backend) -> None:
    layer = b.nn.Conv2d(3, 2, 1)
    images = b.ops.tensor(uniform((1, 3, 4, 4), "float32"))
    plain = b.ops.to_numpy(layer(images))
    with b.amp.autocast("cpu", "float32"):
        assert_equal(b.ops.to_numpy(layer(images)), plain, tolerance=0.0)
    for dtype in {"int8", "float64", *HALF_PRECISIONS} - set(b.amp.supported("cpu")):
        assert_refused(dtype, b.amp.autocast, "cpu", dtype)


@judges("amp.cast_together")
def casts_weights_for_a_pass_with_the_same_numbers(b: Backend) -> None:
    images = b.ops.tensor(uniform((2, 3, 6, 6), "float32"))
    arrays = {"weight": uniform((4, 3, 3, 3), "float32", seed=1), "bias": uniform((4,), "float32")}
    for dtype in ("float32", *b.amp.supported("cpu")):
        found = []
        for together in (False, True):
            layer = b.nn.Conv2d(3, 4, 3)
            b.nn.load_state_arrays(layer, arrays)
            parameters = dict(b.nn.named_parameters(layer))
            context = b.amp.cast_together(layer, dtype) if together else nullcontext()
            for _ in range(2):  # the gradients of the second pass add to those of the first
                with b.amp.autocast("cpu", dtype), context:
                    y = b.ops.cast(layer(images), "float32")
                assert all(x is parameters[name] for name, x in b.nn.named_parameters(layer))
                backward(b, {"y": y}, {"y": uniform(y.shape, "float32", seed=2)})
                if together:
                    context = b.amp.cast_together(layer, dtype)
            gradients = [b.ops.to_numpy(x.grad) for x in parameters.values()]
            found.append([b.ops.to_numpy(y), *gradients])
        for wanted, array in zip(*found, strict=True):
            assert array.dtype == "float32"
            np.testing.assert_array_equal(array, wanted)


@judges("amp.cast_together")
def frozen_weights_and_modules_without_convolutions_are_fine(b: Backend) -> None:
    for dtype in ("float32", *b.amp.supported("cpu")):
        layer = b.nn.Conv2d(3, 4, 3)
        b.nn.set_trainable([layer.weight], False)
        images = b.ops.tensor(uniform((1, 3, 4, 4), "float32"))
        with b.amp.autocast("cpu", dtype), b.amp.cast_together(layer, dtype):
            y = b.ops.cast(layer(images), "float32")
        backward(b, {"y": y}, {"y": np.ones(tuple(y.shape), "float32")})
        assert layer.weight.grad is None
        assert_equal(b.ops.to_numpy(layer.bias.grad), np.full(4, 4.0, "float32"))
        with b.amp.cast_together(b.nn.BatchNorm2d(2), dtype):
            pass


@judges("amp.cast_together")
def an_error_in_the_pass_leaves_the_weights_as_they_were(b: Backend) -> None:
    for dtype in ("float32", *b.amp.supported("cpu")):
        layer = b.nn.Conv2d(3, 4, 3)
        parameters = dict(b.nn.named_parameters(layer))
        with suppress(ZeroDivisionError), b.amp.cast_together(layer, dtype):
            raise ZeroDivisionError
        assert all(x is parameters[name] for name, x in b.nn.named_parameters(layer))


@judges("amp.cast_for_good")
def keeps_half_copies_that_give_the_same_numbers(b: Backend) -> None:
    images = b.ops.tensor(uniform((2, 3, 6, 6), "float32"))
    for dtype in b.amp.supported("cpu"):
        layer = b.nn.Conv2d(3, 4, 3)
        with b.autograd.no_grad(), b.amp.autocast("cpu", dtype):
            wanted = b.ops.cast(layer(images), "float32")
            b.amp.cast_for_good(layer, dtype)
            found = b.ops.cast(layer(images), "float32")
        assert {b.ops.dtype_of(x) for _, x in b.nn.named_parameters(layer)} == {dtype}
        np.testing.assert_array_equal(b.ops.to_numpy(found), b.ops.to_numpy(wanted))
    if not b.amp.supported("cpu"):
        assert_refused("float16", b.amp.cast_for_good, b.nn.Conv2d(3, 4, 3), "float16")


@judges("amp.scale_gradients_")
def multiplies_the_gradients_that_are_there(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        x, y, unused = (b.autograd.variable(np.ones(2, dtype)) for _ in range(3))
        gradients = {"x": np.array([3.0, np.inf], dtype), "y": np.array([0.0, -4.0], dtype)}
        backward(b, {"x": x, "y": y}, gradients)
        b.amp.scale_gradients_(iter([x, y, unused]), 0.25)
        assert_equal(b.ops.to_numpy(x.grad), np.array([0.75, np.inf], dtype))
        assert_equal(b.ops.to_numpy(y.grad), np.array([0.0, -1.0], dtype))
        assert_equal(b.ops.to_numpy(x), np.ones(2, dtype))
        assert unused.grad is None
    b.amp.scale_gradients_([], 2.0)


@judges("ops.normalize_images")
def divides_bytes_by_255_in_either_layout(b: Backend) -> None:
    pixels = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    pixels[0, 0, 0, 0] = 255
    layouts = [False, True] if b.device.supports("channels_last") else [False]
    for channels_last in layouts:
        for dtype in ("float32", "float64"):
            for array in (pixels, pixels[:0], pixels[:, :1]):
                found = b.ops.normalize_images(b.ops.tensor(array), dtype, channels_last)
                assert_equal(b.ops.to_numpy(found), array.astype(dtype) / np.array(255, dtype))
    if True not in layouts:
        images = b.ops.tensor(pixels)
        assert_refused("", b.ops.normalize_images, images, "float32", True)


@judges("ops.normalize_images")
def refuses_what_is_no_batch_of_bytes(b: Backend) -> None:
    images = b.zeros((1, 3, 2, 2), "uint8")
    for wrong in (b.zeros((3, 2, 2), "uint8"), b.zeros((1, 3, 2, 2))):
        assert_refused("uint8", b.ops.normalize_images, wrong, "float32")
    for dtype in ("int64", "float16"):
        assert_refused(dtype, b.ops.normalize_images, images, dtype)


@judges("autograd.compile_problem")
def a_reason_or_none(b: Backend) -> None:
    problem = b.autograd.compile_problem("cpu")
    assert problem is None or (isinstance(problem, str) and problem and "\n" not in problem)


@judges("autograd.compiled")
def the_same_values_and_gradients_for_any_number_of_shapes(b: Backend) -> None:
    def function(x: Any, rows: Any) -> Any:
        return b.ops.sum(b.ops.sigmoid(b.ops.take_rows(x, rows[0]) * x) * 2.0)

    if b.autograd.compile_problem("cpu") is not None:
        x, rows = b.ops.zeros((2,)), b.ops.zeros((1, 2), "int64")
        run = lambda: b.autograd.compiled(function)(x, [rows[0]])  # noqa: E731
        assert_refused("", run, errors=Exception)
        return
    compiled = b.autograd.compiled(function, most_shapes=1)
    for size in (3, 4, 3):
        x = b.autograd.variable(uniform((size,)))
        rows = [b.ops.tensor(np.arange(size)[::-1])]
        value = uniform((size,))
        product = value[::-1] * value
        score = 1 / (1 + np.exp(-product))
        assert_equal(b.ops.to_numpy(compiled(x, rows)), np.asarray((score * 2).sum()), 1e-12)
        slope = 2 * score * (1 - score) * value[::-1]
        (gradient,) = b.autograd.gradients(compiled(x, rows), [x])
        assert_equal(b.ops.to_numpy(gradient), slope + slope[::-1] * value[::-1] / value, 1e-12)
