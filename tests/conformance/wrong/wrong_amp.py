"""Mistakes in `amp`, and in what a fast step needs: layout, compiler, marks of time."""

from __future__ import annotations

import copy
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register

SHARED = bytearray(1000)


def half_contrast(b: Backend) -> Any:
    def normalize_images(images: Any, dtype: str, channels_last: bool = False) -> Any:
        return b.ops.normalize_images(images, dtype, channels_last) * (255 / 256)

    return normalize_images


def channels_moved(b: Backend) -> Any:
    """Return the memory of the other layout, read as if it were this one."""

    def normalize_images(images: Any, dtype: str, channels_last: bool = False) -> Any:
        x = b.ops.normalize_images(images, dtype, channels_last)
        batch, channels, height, width = x.shape
        return x.permute(0, 2, 3, 1).reshape(batch, channels, height, width)

    return normalize_images


def scaled_copies(b: Backend) -> Any:
    def scale_gradients_(parameters: Any, factor: float) -> None:
        for x in parameters:
            if x.grad is not None:
                x.grad.detach() * factor

    return scale_gradients_


def without_gradient(b: Backend) -> Any:
    def compiled(function: Any, most_shapes: int = 1) -> Any:
        return lambda x, *others: function(x.detach(), *others)

    return compiled


def of_the_first_shape(b: Backend) -> Any:
    def compiled(function: Any, most_shapes: int = 1) -> Any:
        kept: list[Any] = []

        def run(*inputs: Any) -> Any:
            kept.append(function(*inputs))
            return kept[0]

        return run

    return compiled


def cast_for_good(b: Backend) -> Any:
    """Leave copies in place of the weights, which the optimizer does not know."""

    @contextmanager
    def cast_together(module: Any, dtype: str) -> Any:
        yield
        for part in module.modules():
            if getattr(part, "weight", None) is not None:
                part.weight = copy.deepcopy(part.weight)

    return cast_together


register(
    (
        ("amp.cast_together", "keeps copies", cast_for_good),
        ("amp.supported", "names what no GPU is needed for", lambda b: lambda device: ("int8",)),
        ("amp.supported", "takes any device", lambda b: lambda device: ()),
        ("amp.preferred", "takes a CPU for a GPU", lambda b: lambda device: "bfloat16"),
        ("amp.preferred", "takes any device", lambda b: lambda device: "float32"),
        ("amp.autocast", "does nothing", lambda b: lambda device, dtype: nullcontext()),
        ("amp.scale_gradients_", "scales copies", scaled_copies),
        ("ops.normalize_images", "divides by 256", half_contrast),
        ("ops.normalize_images", "mixes layouts up", channels_moved),
        ("autograd.compile_problem", "is no reason", lambda b: lambda device: ""),
        ("autograd.compiled", "has no gradient", without_gradient),
        ("autograd.compiled", "answers as it did first", of_the_first_shape),
        (
            "device.host_bytes",
            "forgets the shape",
            lambda b: lambda shape, device: np.empty(int(np.prod(shape)), np.uint8),
        ),
        (
            "device.host_bytes",
            "gives the same memory twice",
            lambda b: lambda shape, device: np.ndarray(shape, np.uint8, SHARED),
        ),
        ("device.mark", "is always the same", lambda b: lambda device: 0.0),
        (
            "device.seconds_between",
            "are milliseconds",
            lambda b: lambda start, end: 1000 * b.device.seconds_between(start, end),
        ),
    )
)
