"""Figures and names of a comparison as its reports write them."""

from __future__ import annotations

from collections.abc import Sequence

STAGE_NAMES = {
    "data_wait": "data wait",
    "to_device": "to device",
    "forward": "forward",
    "loss": "targets and loss",
    "backward": "backward",
    "optimizer": "optimizer",
    "ema": "EMA",
    "validation": "validation",
    "other": "other",
}
TRAINER_NAMES = {"torch": "PyTorch", "oneflow": "OneFlow"}
NONE = "–"


def number(value: float | None, digits: int = 3) -> str:
    """Return about three significant digits, without an exponent."""
    if value is None or value != value:
        return NONE
    whole = int(abs(value))
    decimals = digits - len(str(whole)) if whole else digits
    return f"{value:.{max(decimals, 0)}f}"


def number_range(values: Sequence[float]) -> str:
    """Return "2.33 to 3.50"; one number if both ends are written alike."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def stage_name(name: str) -> str:
    return STAGE_NAMES.get(name, name.replace("_", " "))


def listed(names: Sequence[str]) -> str:
    """Return "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def trainer_name(side: str) -> str:
    """Return the name of a backend or of another trainer as sentences write it."""
    return TRAINER_NAMES.get(side, side)
