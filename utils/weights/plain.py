"""Values of a pickle -> plain YAML and JSON values, within a depth and a number of nodes."""

from __future__ import annotations

import itertools
import math
from typing import Any

from duet.utils.errors import UserError, brief

MAX_DEPTH = 12
MAX_NODES = 50_000  # a list may hold one list many times, and that one again
MAX_TEXT = 1_000  # characters of one string, for the same reason
MAX_BITS = 128  # per whole number


def to_plain(value: Any) -> Any:
    """Copy dicts, lists, strings, numbers, booleans and None; raise UserError for anything else.

    The value is a model description, and the copy is small and a tree, whatever the value is.
    """
    nodes = itertools.count(1)

    def copied(item: Any, key: Any, depth: int) -> Any:
        if depth > MAX_DEPTH or next(nodes) > MAX_NODES:
            raise UserError("the model description is nested too deep or too long")
        if isinstance(item, dict):
            for name in itertools.filterfalse(_is_scalar, item):
                raise UserError(f"the model description has the key {brief(name)}")
            return {str(name): copied(x, name, depth + 1) for name, x in item.items()}
        if isinstance(item, (list, tuple)):
            return [copied(x, key, depth + 1) for x in item]
        if not _is_scalar(item):
            raise UserError(
                f"the model description holds more than text and finite numbers: {key}: "
                f"{brief(item)}"
            )
        return item

    return copied(value, "", 0)


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
