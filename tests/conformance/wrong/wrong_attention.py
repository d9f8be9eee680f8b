"""Mistakes in what attention and activations are made of."""

from __future__ import annotations

from typing import Any

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def overflowing_softmax(b: Backend) -> Any:
    def softmax(x: Any) -> Any:
        powers = x.exp()
        return powers / b.ops.sum(powers, -1, True)

    return softmax


def broadcasting_matmul(b: Backend) -> Any:
    def matmul(x: Any, y: Any) -> Any:
        if x.ndim > y.ndim == 2:
            rows = b.ops.matmul(x.reshape(-1, x.shape[-1]), y)
            return rows.reshape(*x.shape[:-1], y.shape[-1])
        return b.ops.matmul(x, y)

    return matmul


register(
    (
        ("ops.leaky_relu", "is linear", lambda b: lambda x, slope: x * slope),
        (
            "ops.leaky_relu",
            "has no gradient below zero",
            lambda b: lambda x, slope: b.ops.where(x > 0, x, b.ops.leaky_relu(x, slope).detach()),
        ),
        (
            "ops.leaky_relu",
            "has the gradient 1 at zero",
            lambda b: lambda x, slope: b.ops.where(x >= 0, x, x * slope),
        ),
        (
            "ops.matmul",
            "has no gradient by the second matrix",
            lambda b: lambda x, y: b.ops.matmul(x, y.detach()),
        ),
        ("ops.matmul", "takes unequal numbers of matrices", broadcasting_matmul),
        (
            "ops.linear",
            "forgets the bias",
            lambda b: lambda x, weight, bias=None: b.ops.linear(x, weight),
        ),
        ("ops.log_softmax", "overflows", lambda b: lambda x: b.ops.softmax(x).log()),
        ("ops.softmax", "overflows", overflowing_softmax),
        (
            "ops.softmax",
            "is along the first dimension",
            lambda b: (
                lambda x: b.ops.softmax(x.permute(*reversed(range(x.ndim)))).permute(
                    *reversed(range(x.ndim))
                )
            ),
        ),
        (
            "ops.pad_to",
            "has no gradient",
            lambda b: lambda x, *args: b.ops.pad_to(x.detach(), *args),
        ),
        (
            "nn.register_parameter",
            "makes a buffer",
            lambda b: b.nn.register_buffer,
        ),
    )
)
