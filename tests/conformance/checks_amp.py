"""Checks of `contract.Amp`, and of what a fast step needs: layout, compiler."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any

import numpy as np

from tests.conformance.checks_optim import backward
from tests.conformance.judging import Backend, assert_equal, assert_refused, judges, uniform

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
