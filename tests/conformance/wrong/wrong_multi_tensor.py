"""Mistakes in `multi_tensor`: those of the plain updates, and those of memory."""

from __future__ import annotations

from typing import Any

from tests.conformance.checks_multi_tensor import PLAIN, is_plain
from tests.conformance.judging import Backend
from tests.conformance.wrong import wrong_adam, wrong_ops, wrong_training  # noqa: F401
from tests.conformance.wrong.registry import WRONG, register


def average_of_what_was_there_first(b: Backend) -> Any:
    """Use the first tensors again in a later call with equally many."""
    kept: dict[int, Any] = {}

    def ema_update_(averages: Any, values: Any, decay: float, lost: Any = None) -> None:
        if len(averages) != len(values):
            raise ValueError(f"{len(values)} values")
        first = kept.setdefault(len(averages), (averages, values))
        b.ops.ema_update_(*first, decay, lost)

    return ema_update_


register(
    [
        (name, wrong.mistake, wrong.build)
        for name, plain_names in PLAIN.items()
        for wrong in WRONG
        if any(is_plain(wrong.name, plain) for plain in plain_names)
    ]
)
register(
    (
        (
            "multi_tensor.ema_update_",
            "keeps to the first tensors",
            average_of_what_was_there_first,
        ),
        (
            "multi_tensor.describe",
            "does not say which",
            lambda b: lambda optimizer, device: "fused, CPU",
        ),
    )
)
