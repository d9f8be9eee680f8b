"""Values of a pickle -> plain YAML and JSON values, within a depth and a number of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from utils.errors import UserError, brief

MAX_DEPTH = 12
MAX_NODES = 50_000  # a list may hold one list many times, and that one again
MAX_TEXT = 1_000  # characters of one string, for the same reason
MAX_BITS = 128  # of a whole number


def to_plain(value: Any) -> Any:
    """Copy dicts, lists, strings, numbers, booleans and None; raise UserError for anything else.

    The value is a model description, and the copy is small and a tree, whatever the value is.
    """
    return _Copy().copy(value, "", 0)


class _Copy:
    def __init__(self) -> None:
        self.nodes = 0

    def copy(self, value: Any, key: str, depth: int) -> Any:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise UserError("the model description is nested too deep or too long")
        if isinstance(value, dict):
            return {name: self.copy(x, name, depth + 1) for name, x in self.items(value)}
        if isinstance(value, (list, tuple)):
            return [self.copy(item, key, depth + 1) for item in value]
        if not _is_scalar(value):
            raise UserError(
                f"the model description holds more than text and finite numbers: {key}: "
                f"{brief(value)}"
            )
        return value

    def items(self, value: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
        for key, item in value.items():
            if not _is_scalar(key):
                raise UserError(f"the model description has the key {brief(key)}")
            yield str(key), item


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and value.bit_length() <= MAX_BITS)


def plain_numbers(value: Any) -> dict[str, float]:
    """Return the finite numbers of a dict by name; {} for anything else."""
    if not isinstance(value, dict):
        return {}
    return {
        key: item
        for key, item in value.items()
        if isinstance(key, str) and type(item) in (int, float) and math.isfinite(item)
    }
