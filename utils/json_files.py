"""JSON read within bounds, and its values checked for the expected form before they are used.

A large object is read member by member, and its lists entry by entry: memory is that of the largest
entry, not of the file.
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
MAX_BYTES = 1 << 27  # of a file of ours
LARGEST_COUNT = 2**53  # far above any number of batches or images
MAX_ENTRY = 1 << 26  # characters of an entry, or of a member that is no list
_BLOCK_CHARACTERS = 1 << 20
_BLANKS = " \t\n\r"
_BEHIND_A_VALUE = frozenset(_BLANKS + ",]}:")
_ABSENT = object()


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """Return the value of a JSON file; OSError as `read_text_bytes`, ValueError as `parse_json`."""
    return parse_json(read_text_bytes(path, max_bytes))


def parse_json(content: str | bytes) -> Any:
    """Return the value of a JSON text; NaN and infinity are accepted, a state may hold them.

    Raises:
        ValueError: no JSON in UTF-8, a key twice, a whole number beyond 64 bits, or nested deeper
            than `MAX_DEPTH`.
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    try:
        value = json.loads(text, parse_int=_integer, object_pairs_hook=_object)
    except RecursionError:
        raise _too_deep() from None
    _check_depth(value)
    return value


def _integer(digits: str) -> int:
    if len(digits) <= 18:  # nearly all, of which a large file has millions
        return int(digits)
    # Python's own limit is 4,300 digits, and from 400 on a float is no longer made of it.
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


# For values that are parsed one by one, as `parse_json` parses them.
_DECODER = json.JSONDecoder(parse_int=_integer, object_pairs_hook=_object)


def _check_depth(value: Any) -> None:
    """Raise ValueError beyond the limit, level by level: what uses a value may walk down it."""
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


def read_members(path: Path, max_bytes: int) -> Iterator[tuple[str, Iterator[Any] | None]]:
    """Yield each member of the object in a JSON file: its name, and the entries of its list.

    The entries are read when they are asked for; those left over are skipped. They are None where
    the value is no list. NaN and infinity are accepted.

    Raises:
        OSError: as `regular.open_regular`.
        ValueError: no JSON object in UTF-8, a name twice, a whole number beyond 64 bits, an entry
            beyond `MAX_ENTRY`, or nested too deep.
    """
    with open_regular(path, max_bytes) as file:
        text, seen = _Text(file), set()
        text.take("{")
        for name in text.values("}"):
            if not isinstance(name, str) or name in seen:
                raise ValueError(f"the key {brief(name)} appears twice, or is no text")
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
    """The text of a file, of which a window is in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = io.TextIOWrapper(file, "utf-8-sig")
        self._window, self._at = "", 0

    def next_character(self) -> str:
        """Return the next character that is no blank; "" at the end of the file."""
        while True:
            while self._at < len(self._window):
                if (character := self._window[self._at]) not in _BLANKS:
                    return character
                self._at += 1
            if not self._read_on():
                return ""

    def take(self, expected: str) -> None:
        """Pass a character that must come next; "" stands for the end of the file."""
        if self.next_character() != expected:
            found = self._window[self._at :][:20]
            what = brief(found) if found else "the end of the file"
            raise ValueError(f"{expected or 'its end'} is needed where {what} follows")
        self._at += len(expected)

    def values(self, closing: str) -> Iterator[Any]:
        """Yield values with commas between them, up to a closing character, which is passed."""
        if self.next_character() != closing:
            yield self.value()
            while self.next_character() != closing:
                self.take(",")
                yield self.value()
        self.take(closing)

    def value(self) -> Any:
        """Return the value that comes next."""
        self.next_character()
        while True:
            reason = "a value goes on"
            try:
                value, end = _DECODER.raw_decode(self._window, self._at)
            except json.JSONDecodeError as error:  # perhaps only because the window ends
                near = brief(self._window[error.pos :][:20])
                reason = f"{error.msg.removesuffix(' at')} where {near} follows"
            except RecursionError:
                raise _too_deep() from None
            else:
                if self._window[end : end + 1] in _BEHIND_A_VALUE:
                    self._at = end
                    return value
            if len(self._window) - self._at > MAX_ENTRY:
                raise ValueError(f"{reason}; an entry has at most {MAX_ENTRY:,} characters")
            if not self._read_on():
                raise ValueError(f"{reason}, and the file ends")

    def _read_on(self) -> bool:
        """Forget what was read and read at least as much as is left; False at the file's end."""
        left = self._window[self._at :]
        block = self._file.read(max(_BLOCK_CHARACTERS, len(left)))
        self._window, self._at = left + block, 0
        return bool(block)
