"""A large JSON object read member by member, and its lists entry by entry.

Memory is that of the largest entry, not of the file.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from utils.errors import brief
from utils.files.json import DECODER, too_deep
from utils.files.regular import open_regular

MAX_ENTRY = 1 << 26  # characters of an entry, or of a member that is no list
_BLOCK_BYTES = 1 << 20
_BLANKS = " \t\n\r"
_BEHIND_A_VALUE = frozenset(_BLANKS + ",]}:")


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
        if text.next_character():
            raise ValueError(f"more follows after its end, at character {text.position}")


class _Text:
    """The text of a file, of which a window is in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._window, self._at = "", 0
        self._before = 0  # characters in front of the window
        self._ended = False

    @property
    def position(self) -> int:
        """The number of characters that were read."""
        return self._before + self._at

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
        """Pass a character that must come next."""
        if (found := self.next_character()) != expected:
            what = brief(found) if found else "its end"
            raise ValueError(f"{what} at character {self.position}, where {expected} is needed")
        self._at += 1

    def values(self, closing: str) -> Iterator[Any]:
        """Yield values with commas between them, up to a closing character, which is passed."""
        if self.next_character() != closing:
            yield self.value()
            while self.next_character() != closing:
                self.take(",")
                yield self.value()
        self._at += 1

    def value(self) -> Any:
        """Return the value that comes next."""
        self.next_character()
        while True:
            reason = "a value goes on"
            try:
                value, end = DECODER.raw_decode(self._window, self._at)
            except json.JSONDecodeError as error:  # perhaps only because the window ends
                reason = f"{error.msg.removesuffix(' at')} at character {self._before + error.pos}"
            except RecursionError:
                raise too_deep() from None
            else:
                if self._window[end : end + 1] in _BEHIND_A_VALUE:
                    self._at = end
                    return value
            if len(self._window) - self._at > MAX_ENTRY:
                raise ValueError(f"{reason}; an entry has at most {MAX_ENTRY:,} characters")
            if not self._read_on():
                raise ValueError(f"{reason}, where the file ends")

    def _read_on(self) -> bool:
        """Forget what was read and read at least as much as is left; False at the file's end."""
        if self._ended:
            return False
        left = self._window[self._at :]
        block = self._file.read(max(_BLOCK_BYTES, len(left)))
        self._ended = not block
        self._before += self._at
        self._window, self._at = left + self._decoder.decode(block, final=self._ended), 0
        return True
