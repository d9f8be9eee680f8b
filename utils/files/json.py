"""Whether a JSON value has the form that is expected, so that what a file says can be relied on."""

from __future__ import annotations

from typing import Any

LARGEST_COUNT = 2**53  # far above any number of batches or images


def fits(value: Any, kind: Any) -> bool:
    """Whether a JSON value is of a kind.

    Args:
        kind: str, bool, int (a count: 0 up), float (NaN too: a loss may be), dict; [kind] is a
            list of any length, (kind, ...) one of this length, {name: kind, ...} an object with
            exactly these names.
    """
    if isinstance(kind, dict):
        same = isinstance(value, dict) and value.keys() == kind.keys()
        return same and all(fits(value[name], of_name) for name, of_name in kind.items())
    if isinstance(kind, list):
        return isinstance(value, list) and all(fits(item, kind[0]) for item in value)
    if isinstance(kind, tuple):
        same = isinstance(value, list) and len(value) == len(kind)
        return same and all(map(fits, value, kind))
    if kind is float:
        return type(value) is float or (type(value) is int and abs(value) <= LARGEST_COUNT)
    return type(value) is kind and (kind is not int or 0 <= value <= LARGEST_COUNT)
