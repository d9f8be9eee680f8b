"""Read JSON within limits, and validate its structure before use."""

import copy
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from duet.utils.errors import brief
from duet.utils.files.regular import read_text_bytes

Document = Mapping[str, Any]  # of a YAML or JSON file, or a part of it: plain values

MAX_DEPTH = 64
TOO_DEEP = f"nested deeper than {MAX_DEPTH}"
MAX_BYTES = 1 << 27  # for our own files
LARGEST_COUNT = 2**53  # far above any number of batches or images
_ABSENT = object()


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """Read a JSON file; OSError as `read_text_bytes`, ValueError as `parse_json`."""
    # Decoded here, where nothing holds the bytes any longer: COCO's annotations have 450 MB.
    return parse_json(read_text_bytes(path, max_bytes).decode("utf-8-sig"))


def parse_json(content: str | bytes) -> Any:
    """Parse JSON; NaN and infinity are accepted, because a state may contain them.

    ValueError: not JSON in UTF-8, a duplicate key, a whole number beyond 64 bits, or nested deeper
    than `MAX_DEPTH`.
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    try:
        value = json.loads(text, parse_int=_integer, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    _check_depth(value)
    return value


def _integer(digits: str) -> int:
    if len(digits) <= 18:  # fast path; a large file has millions
        return int(digits)
    # Python's limit is 4,300 digits, and a float overflows at about 310.
    value = int(digits) if len(digits) <= 20 else 2**64
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"the number {digits[:30]}{'...' * (len(digits) > 30)} is beyond 64 bits")
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (repeated, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {brief(repeated)} appears twice")
    return found


def _check_depth(value: object) -> None:
    """Raise ValueError beyond the limit, because users of a value may recurse into it."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for part in level
            for item in (part.values() if isinstance(part, dict) else part)
            if type(item) in (dict, list)
        ]
        if not level:
            return
    raise ValueError(TOO_DEEP)


class Default(NamedTuple):
    """The kind of an optional member, and its default."""

    kind: Any
    value: Any


def complete(value: object, kind: object, name: str = "") -> Any:
    """Check that a JSON value is of a kind, and fill in defaults.

    Args:
        kind: str, bool, int (a count, from 0), float (also NaN, as for a loss), dict; [kind] is a
            list of any length, {name: kind, ...} an object with exactly these names. Those with a
            `Default` are optional; `str: kind` allows any other name.
        name: name of the value, for the error.

    ValueError: a value of another kind, missing or unknown; the message is its name, such as "a.b".
    """
    if isinstance(kind, Default):
        return copy.deepcopy(kind.value) if value is _ABSENT else complete(value, kind.kind, name)
    if isinstance(kind, dict) and isinstance(value, dict):
        kinds = {**dict.fromkeys(value, kind.get(str)), **kind}
        return {
            key: complete(value.get(key, _ABSENT), member, f"{name}.{key}" if name else key)
            for key, member in kinds.items()
            if key is not str
        }
    if isinstance(kind, list) and isinstance(value, list):
        return [complete(item, kind[0], name) for item in value]
    lowest = -LARGEST_COUNT if kind is float else 0
    same = type(value) is kind or (kind is float and type(value) is int)
    if not same or (type(value) is int and not lowest <= value <= LARGEST_COUNT):
        raise ValueError(name)
    return value
