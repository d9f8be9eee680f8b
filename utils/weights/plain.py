"""Values of a pickle -> plain YAML and JSON values, within a depth and a number of nodes."""

from __future__ import annotations

import math
from typing import Any

from utils.errors import UserError

MAX_DEPTH = 12
MAX_NODES = 50_000  # a list may hold one list many times, and that one again


def to_plain(value: Any) -> Any:
    """Copy dicts, lists, strings, numbers, booleans and None; raise UserError for anything else."""
    return _Copy().copy(value, 0)


class _Copy:
    def __init__(self) -> None:
        self.nodes = 0

    def copy(self, value: Any, depth: int) -> Any:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise UserError("the model description is nested too deep or too long")
        if isinstance(value, dict):
            return {str(key): self.copy(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.copy(item, depth + 1) for item in value]
        if value is None or isinstance(value, (str, bool, int)):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        raise UserError("the model description holds more than text and finite numbers")


def printable(text: str) -> str:
    """Shorten text out of a file for a message, with control characters spelt out."""
    return text[:100].encode("unicode_escape").decode("ascii")


def plain_numbers(value: Any) -> dict[str, float]:
    """Return the finite numbers of a dict by name; {} for anything else."""
    if not isinstance(value, dict):
        return {}
    return {
        key: item
        for key, item in value.items()
        if isinstance(key, str) and type(item) in (int, float) and math.isfinite(item)
    }
