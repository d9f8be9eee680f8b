"""Mistakes in the methods and operators of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.judging import TENSOR_METHODS, Backend
from tests.conformance.wrong.registry import register


def without_gradient(name: str) -> Any:
    """Apply the operator of this name to detached tensors."""

    def build(b: Backend) -> Any:
        def detached(value: Any) -> Any:
            return value.detach() if hasattr(value, "detach") else value

        return lambda *values: TENSOR_METHODS[name](*map(detached, values))

    return build


def of_float64(name: str) -> Any:
    """Apply the operator of this name and promote its result, as older NumPy did for 0-d arrays."""
    return lambda b: lambda *values: b.ops.cast(TENSOR_METHODS[name](*values), "float64")


def instead(name: str) -> Any:
    """Apply another operator than the one asked for."""
    return lambda b: TENSOR_METHODS[name]


def in_float64(name: str) -> Any:
    """Apply the operator of this name to float64, which rounds integers beyond 2**53."""
    return lambda b: lambda x, y: TENSOR_METHODS[name](b.ops.cast(x, "float64"), y)


ARITHMETIC = ("__add__", "__sub__", "__mul__", "__truediv__")
register((f"Tensor.{name}", "has no gradient", without_gradient(name)) for name in ARITHMETIC)
register((f"Tensor.{name}", "promotes", of_float64(name)) for name in ARITHMETIC)
register(
    (
        ("Tensor.__radd__", "promotes", of_float64("__radd__")),
        ("Tensor.__rmul__", "promotes", of_float64("__rmul__")),
        ("Tensor.__rsub__", "is not reflected", instead("__sub__")),
        ("Tensor.__rtruediv__", "is not reflected", instead("__truediv__")),
        ("Tensor.__pow__", "has no gradient", without_gradient("__pow__")),
        (
            "Tensor.__pow__",
            "goes by the logarithm",
            lambda b: lambda x, n: (x.log() * n).exp(),
        ),
        ("Tensor.__neg__", "has no gradient", without_gradient("__neg__")),
        ("Tensor.__lt__", "includes equality", instead("__le__")),
        ("Tensor.__le__", "excludes equality", instead("__lt__")),
        ("Tensor.__gt__", "includes equality", instead("__ge__")),
        ("Tensor.__gt__", "is rounded", in_float64("__gt__")),
        ("Tensor.__le__", "is rounded", in_float64("__le__")),
        ("Tensor.__ge__", "is not less", lambda b: lambda x, y: (x < y).logical_not()),
        ("Tensor.__getitem__", "has no gradient", lambda b: lambda x, i: x[i].detach()),
        (
            "Tensor.reshape",
            "reads columns first",
            lambda b: (
                lambda x, *shape: b.ops.tensor(
                    np.reshape(b.ops.to_numpy(x), shape, order="F").copy()
                )
            ),
        ),
        (
            "Tensor.permute",
            "inverts the order",
            lambda b: lambda x, *dims: x.permute(*(int(d) for d in np.argsort(dims))),
        ),
        ("Tensor.detach", "keeps the gradient", lambda b: lambda x: x),
        ("Tensor.shape", "holds NumPy integers", lambda b: lambda x: tuple(np.array(x.shape))),
        ("Tensor.ndim", "is at least 1", lambda b: lambda x: max(1, x.ndim)),
        ("Tensor.requires_grad", "is always True", lambda b: lambda x: True),
        (
            "Tensor.grad",
            "is zeros before the first backward",
            lambda b: lambda x: b.ops.zeros(x.shape) if x.grad is None else x.grad,
        ),
    )
)
