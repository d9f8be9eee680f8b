"""Mistakes in `fused`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def complete_iou(mistake: str) -> Any:
    """Make the plain formula with one mistake."""

    def build(b: Backend) -> Any:
        ops = b.ops

        def axis(pred: Any, target: Any, index: int) -> tuple[Any, Any]:
            """Return overlap and hull along an axis."""
            low = pred[:, index] - pred[:, index + 2] / 2
            high = pred[:, index] + pred[:, index + 2] / 2
            other_low = target[:, index] - target[:, index + 2] / 2
            other_high = target[:, index] + target[:, index + 2] / 2
            if mistake == "gives a tie to the target":
                other_high = ops.where(high >= other_high, other_high - 1e-13, other_high)
            overlap = ops.minimum(high, other_high) - ops.maximum(low, other_low)
            hull = ops.maximum(high, other_high) - ops.minimum(low, other_low)
            return overlap, hull

        def wrong(pred: Any, target: Any, eps: float = 1e-7) -> Any:
            if mistake != "repeats a single row" or pred.shape[0] != 1:
                b.fused.complete_iou(pred, target)
            if mistake == "fails for no boxes" and pred.shape[0] == 0:
                raise AssertionError("division by zero")
            if mistake == "knows one eps":
                eps = 1e-7
            if mistake == "divides by zero":
                eps = 0.0
            if mistake != "moves the target":
                target = target.detach()
            overlap, hull = zip(*(axis(pred, target, index) for index in (0, 1)), strict=True)
            if mistake != "multiplies two gaps":
                overlap = tuple(ops.clamp(x, low=0.0) for x in overlap)
            intersection = overlap[0] * overlap[1]
            area = pred[:, 2] * pred[:, 3] + target[:, 2] * target[:, 3]
            iou = intersection / (area - intersection + eps)
            if mistake == "is IoU":
                return iou
            offset = pred - target
            distance = offset[:, 0] ** 2 + offset[:, 1] ** 2
            distance = distance / (hull[0] ** 2 + hull[1] ** 2 + eps)
            angle = ops.atan(target[:, 2] / (target[:, 3] + eps)) - ops.atan(
                pred[:, 2] / (pred[:, 3] + eps)
            )
            aspect = angle**2 * (4 / math.pi**2)
            alpha = aspect / (aspect + ops.clamp(1.0 - iou, low=0.0) + eps)
            if mistake != "follows the trade-off":
                alpha = alpha.detach()
            return iou - distance - aspect * alpha

        return wrong

    return build


def batch_norm_silu(mistake: str) -> Any:
    """Make both layers one after the other, with one mistake."""

    def build(b: Backend) -> Any:
        def wrong(norm: Any, x: Any) -> Any:
            if mistake == "forgets SiLU":
                return norm(x)
            if mistake == "always learns":
                norm.train()
            if mistake == "learns from one value" and x.shape[0] * x.shape[2] * x.shape[3] == 1:
                return x
            if mistake == "keeps its statistics":
                state = b.nn.state_arrays(norm)
                y = b.ops.silu(norm(x))
                b.nn.load_state_arrays(norm, state)
                return y
            y = norm(x.detach() if mistake == "has no gradient by its input" else x)
            return b.ops.silu(y.detach() if mistake == "has no gradient" else y)

        return wrong

    return build


def take_rows_and_column(mistake: str) -> Any:
    """Make the two operations, with one mistake."""

    def build(b: Backend) -> Any:
        def wrong(x: Any, index: Any, column: int) -> Any:
            if mistake == "takes any index":
                index = b.ops.tensor(b.ops.to_numpy(index).astype("int64").reshape(-1) * 0)
            rows, values = b.fused.take_rows_and_column(x, index, column)
            if mistake == "has no gradient by its rows":
                rows = rows.detach()
            if mistake == "has no gradient by its column":
                values = values.detach()
            if mistake == "takes the first column":
                values = x[:, 0]
            if mistake == "counts a row once":
                places = b.ops.to_numpy(index)
                first = np.zeros(places.shape, "bool")
                first[np.unique(places, return_index=True)[1]] = True
                size = rows.shape[0]
                kept = b.ops.tensor(first.reshape(size, 1))
                rows = b.ops.where(kept, rows, rows.detach())
            return rows, values

        return wrong

    return build


register(
    (
        *(
            ("fused.take_rows_and_column", mistake, take_rows_and_column(mistake))
            for mistake in (
                "takes any index",
                "has no gradient by its rows",
                "has no gradient by its column",
                "takes the first column",
                "counts a row once",
            )
        ),
        *(
            ("fused.batch_norm_silu", mistake, batch_norm_silu(mistake))
            for mistake in (
                "forgets SiLU",
                "always learns",
                "learns from one value",
                "keeps its statistics",
                "has no gradient by its input",
                "has no gradient",
            )
        ),
        *(
            ("fused.complete_iou", mistake, complete_iou(mistake))
            for mistake in (
                "repeats a single row",
                "fails for no boxes",
                "knows one eps",
                "divides by zero",
                "moves the target",
                "multiplies two gaps",
                "is IoU",
                "follows the trade-off",
                "gives a tie to the target",
            )
        ),
    )
)
