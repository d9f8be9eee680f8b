"""Read JSON within limits, and validate its structure before use.

Large objects are read member by member and their lists entry by entry, so that memory is limited
by the largest entry, not the file.
"""

from __future__ import annotations

import copy
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from duet.utils.errors import brief
from duet.utils.regular_files import open_regular, read_text_bytes

MAX_DEPTH = 64
MAX_BYTES = 1 << 27  # for our own files
LARGEST_COUNT = 2**53  # far above any number of batches or images
MAX_ENTRY = 1 << 26  # characters in an entry, or a member that is not a list
_BLOCK_CHARACTERS = 1 << 20
_BLANKS = " \t\n\r"
_BEHIND_A_VALUE = frozenset(_BLANKS + ",]}:")
_ABSENT = object()


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """Read a JSON file; OSError as `read_text_bytes`, ValueError as `parse_json`."""
    return parse_json(read_text_bytes(path, max_bytes))


def parse_json(content: str | bytes) -> Any:
    """Parse JSON; NaN and infinity are accepted, because a state may contain them.

    Raises:
        ValueError: not JSON in UTF-8, a duplicate key, a whole number beyond 64 bits, or nested
            deeper than `MAX_DEPTH`.
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    try:
        value = json.loads(text, parse_int=_integer, object_pairs_hook=_object)
    except RecursionError:
        raise _too_deep() from None
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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (repeated, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {brief(repeated)} appears twice")
    return found


# Parses single values like `parse_json`.
_DECODER = json.JSONDecoder(parse_int=_integer, object_pairs_hook=_object)


def _check_depth(value: Any) -> None:
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
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"nested deeper than {MAX_DEPTH}")


class Default(NamedTuple):
    """The kind of an optional member, and its default."""

    kind: Any
    value: Any


def complete(value: Any, kind: Any, name: str = "") -> Any:
    """Check that a JSON value is of a kind, and fill in defaults.

    Args:
        kind: str, bool, int (a count, from 0), float (also NaN, as for a loss), dict; [kind] is a
            list of any length, {name: kind, ...} an object with exactly these names. Those with a
            `Default` are optional; `str: kind` allows any other name.
        name: name of the value, for the error.

    Raises:
        ValueError: a value of another kind, missing or unknown; the message is its name, such as
            "a.b".
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


def read_members(path: Path, max_bytes: int) -> Iterator[tuple[str, Iterator[Any] | None]]:
    """Yield the members of the object in a JSON file: name, and iterator over its list.

    Entries are read lazily, and skipped if not consumed. None if the value is not a list. NaN and
    infinity are accepted.

    Raises:
        OSError: as `regular.open_regular`.
        ValueError: not a JSON object in UTF-8, a duplicate name, a whole number beyond 64 bits, an
            entry beyond `MAX_ENTRY`, or nested too deeply.
    """
    with open_regular(path, max_bytes) as file:
        text, seen = _Text(file), set()
        text.take("{")
        for name in text.values("}"):
            if not isinstance(name, str) or name in seen:
                raise ValueError(f"the key {brief(name)} appears twice, or is not text")
            seen.add(name)
            text.take(":")
            if text.next_character() == "[":
                text.take("[")
                entries = text.values("]")
                yield name, entries
                for _ in entries:
                    pass
            else:
                text.value()
                yield name, None
        text.take("")


class _Text:
    """The text of a file, read through a window in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = io.TextIOWrapper(file, "utf-8-sig")
        self._window, self._at = "", 0

    def next_character(self) -> str:
        """Return the next non-blank character; "" at the end of the file."""
        while True:
            while self._at < len(self._window):
                if (character := self._window[self._at]) not in _BLANKS:
                    return character
                self._at += 1
            if not self._read_more():
                return ""

    def take(self, expected: str) -> None:
        """Consume an expected character; "" stands for the end of the file."""
        if self.next_character() != expected:
            found = self._window[self._at :][:20]
            end = "the end of the file"
            what = brief(found) if found else end
            raise ValueError(f"expected {repr(expected) if expected else end}, found {what}")
        self._at += len(expected)

    def values(self, closing: str) -> Iterator[Any]:
        """Yield comma-separated values, and consume the closing character."""
        if self.next_character() != closing:
            yield self.value()
            while self.next_character() != closing:
                self.take(",")
                yield self.value()
        self.take(closing)

    def value(self) -> Any:
        """Parse the next value."""
        self.next_character()
        while True:
            reason = "incomplete value"
            try:
                value, end = _DECODER.raw_decode(self._window, self._at)
            except json.JSONDecodeError as error:  # maybe only because the window ends
                near = brief(self._window[error.pos :][:20])
                reason = f"{error.msg.removesuffix(' at')} at {near}"
            except RecursionError:
                raise _too_deep() from None
            else:
                if self._window[end : end + 1] in _BEHIND_A_VALUE:
                    self._at = end
                    return value
            if len(self._window) - self._at > MAX_ENTRY:
                raise ValueError(f"{reason}; an entry may have at most {MAX_ENTRY:,} characters")
            if not self._read_more():
                raise ValueError(f"{reason} at the end of the file")

    def _read_more(self) -> bool:
        """Move the window on and at least double what is unread; False at the end of the file."""
        left = self._window[self._at :]
        block = self._file.read(max(_BLOCK_CHARACTERS, len(left)))
        self._window, self._at = left + block, 0
        return bool(block)
