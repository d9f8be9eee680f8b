"""Mistakes in `ops.take_where`."""

from __future__ import annotations

from typing import Any

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def rows_as_if_contiguous(b: Backend) -> Any:
    def take_where(x: Any, condition: Any) -> Any:
        right = b.ops.take_where(x, condition)
        rows = b.ops.tensor(b.ops.to_numpy(x).ravel("F").reshape(x.shape))
        return right if x.ndim < 3 else b.ops.take_where(rows, condition)

    return take_where


register(
    (
        ("ops.take_where", "takes a permuted tensor for a flat one", rows_as_if_contiguous),
        (
            "ops.take_where",
            "takes the other rows",
            lambda b: lambda x, c: b.ops.take_where(x, b.ops.tensor(~b.ops.to_numpy(c))),
        ),
    )
)
