"""Mistakes in `fused` and `multi_tensor`."""

from __future__ import annotations

import math
from typing import Any

from tests.conformance.checks_multi_tensor import PLAIN
from tests.conformance.judging import Backend
from tests.conformance.wrong import wrong_ops, wrong_training  # noqa: F401
from tests.conformance.wrong.registry import WRONG, Build, register, returning


def complete_iou(mistake: str) -> Build:
    """Make the plain formula with one mistake."""

    def build(b: Backend, right: Any) -> Any:
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
            return overlap, ops.maximum(high, other_high) - ops.minimum(low, other_low)

        def wrong(pred: Any, target: Any, eps: float = 1e-7) -> Any:
            if mistake != "repeats a single row" or pred.shape[0] != 1:
                right(pred, target)
            if mistake == "fails for no boxes" and pred.shape[0] == 0:
                raise AssertionError("division by zero")
            eps = {"knows one eps": 1e-7, "divides by zero": 0.0}.get(mistake, eps)
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
            angles = [ops.atan(x[:, 2] / (x[:, 3] + eps)) for x in (target, pred)]
            aspect = (angles[0] - angles[1]) ** 2 * (4 / math.pi**2)
            alpha = aspect / (aspect + ops.clamp(1.0 - iou, low=0.0) + eps)
            return iou - distance - aspect * (alpha if mistake == "moves alpha" else alpha.detach())

        return wrong

    return build


def batch_norm_silu(mistake: str) -> Build:
    """Make both layers one after the other, with one mistake."""

    def build(b: Backend, right: Any) -> Any:
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


def finish_images(mistake: str) -> Build:
    def build(b: Backend, right: Any) -> Any:
        columns = {
            "never flips": (slice(0, 2), False),
            "keeps all colours": (2, False),
            "changes all colours": (2, True),
        }

        def wrong(
            images: Any, tables: Any, changes: Any, dtype: str, channels_last: bool = False
        ) -> Any:
            if not b.device.supports("finishing"):
                return images
            arrays = [b.ops.to_numpy(x).copy() for x in (images, tables, changes)]
            if mistake in columns:
                column, value = columns[mistake]
                arrays[2][..., column] = value
            if mistake == "mixes tables up":
                arrays[1] = arrays[1][:, [0, 2, 1]]
            inputs = map(b.ops.tensor, arrays)
            if mistake == "takes any shapes":
                try:
                    return right(*inputs, dtype, channels_last)
                except ValueError:
                    return images
            return right(*inputs, dtype, channels_last)

        return wrong

    return build


MISTAKES = {
    complete_iou: (
        "repeats a single row",
        "fails for no boxes",
        "knows one eps",
        "divides by zero",
        "moves the target",
        "multiplies two gaps",
        "is IoU",
        "moves alpha",
        "gives a tie to the target",
    ),
    batch_norm_silu: (
        "forgets SiLU",
        "always learns",
        "learns from one value",
        "keeps its statistics",
        "has no gradient by its input",
        "has no gradient",
    ),
    finish_images: (
        "never flips",
        "keeps all colours",
        "changes all colours",
        "mixes tables up",
        "takes any shapes",
    ),
}
for make, mistakes in MISTAKES.items():
    register(*((f"fused.{make.__name__}", mistake, make(mistake)) for mistake in mistakes))
register(("fused.finish_problem", "knows of none", returning(None)))


def average_of_what_was_there_first(b: Backend, right: Any) -> Any:
    """Use the first tensors again in a later call with equally many."""
    kept: dict[int, Any] = {}

    def ema_update_(averages: Any, values: Any, decay: float, lost: Any = None) -> None:
        if len(averages) != len(values):
            raise ValueError(f"{len(values)} values")
        first = kept.setdefault(len(averages), (averages, values))
        b.optim.ema_update_(*first, decay, lost)

    return ema_update_


register(
    *(
        (name, wrong.mistake, wrong.build)
        for name, plain in PLAIN.items()
        for wrong in WRONG
        if wrong.name == plain
    ),
    ("multi_tensor.ema_update_", "keeps to the first tensors", average_of_what_was_there_first),
    ("multi_tensor.describe", "does not say which", returning("fused, CPU")),
)
