"""Mistakes in the `ops` of detection."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def rows_as_if_contiguous(b: Backend) -> Any:
    def take_at(x: Any, places: Any) -> Any:
        right = b.ops.take_at(x, places)
        rows = b.ops.tensor(b.ops.to_numpy(x).ravel("F").reshape(x.shape))
        return right if x.ndim < 3 else b.ops.take_at(rows, places)

    return take_at


def rows_first(b: Backend) -> Any:
    def cells(height: int, width: int, like: Any) -> Any:
        return b.ops.cells(width, height, like).permute(0, 1, 3, 2, 4)

    return cells


def float32_cells(b: Backend) -> Any:
    return lambda height, width, like: b.ops.cells(height, width, b.zeros((1,)))


register(
    (
        ("ops.cells", "has rows before columns", rows_first),
        ("ops.cells", "is float32 always", float32_cells),
        (
            "ops.cells",
            "counts from the centres",
            lambda b: lambda height, width, like: b.ops.cells(height, width, like) + 0.5,
        ),
        ("ops.take_at", "takes a permuted tensor for a flat one", rows_as_if_contiguous),
        (
            "ops.take_at",
            "takes rows in ascending order",
            lambda b: lambda x, places: b.ops.take_at(x, [np.sort(index) for index in places]),
        ),
    )
)
