"""JSON values checked for the expected form before they are used."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

LARGEST_COUNT = 2**53  # far above any number of batches or images
_ABSENT = object()


class Default(NamedTuple):
    """The kind of what an object may lack, and the value that it has then."""

    kind: Any
    value: Any


def complete(value: Any, kind: Any, name: str = "") -> Any:
    """Return a JSON value of a kind, with the defaults of what its objects lack.

    Args:
        kind: str, bool, int (a count: 0 up), float (NaN too: a loss may be), dict; [kind] is a
            list of any length, {name: kind, ...} an object with exactly these names. Of these it
            may lack those with a `Default`; `str: kind` allows all others too.
        name: of the value, for the error.

    Raises:
        ValueError: something is of another kind, absent or not known; its name, "a.b" for b in a.
    """
    if isinstance(kind, Default):
        return copy.deepcopy(kind.value) if value is _ABSENT else complete(value, kind.kind, name)
    if isinstance(kind, dict) and isinstance(value, dict):
        kinds = {**dict.fromkeys(value, kind.get(str)), **kind}
        return {
            key: complete(value.get(key, _ABSENT), of_key, f"{name}.{key}" if name else key)
            for key, of_key in kinds.items()
            if key is not str
        }
    if isinstance(kind, list) and isinstance(value, list):
        return [complete(item, kind[0], name) for item in value]
    lowest = -LARGEST_COUNT if kind is float else 0
    same = type(value) is kind or (kind is float and type(value) is int)
    if not same or (type(value) is int and not lowest <= value <= LARGEST_COUNT):
        raise ValueError(name)
    return value
