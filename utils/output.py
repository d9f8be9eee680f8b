"""Text on its way to people: names and values from outside cannot steer the terminal.

File names, class names and headers of files may hold escape codes, line ends, characters that turn
the direction of writing, or bytes that are no text. What a command prints goes through `say`, what
it logs through `LineFormatter`: they write one line as one line, with such characters spelt out.
"""

from __future__ import annotations

import io
import logging
import reprlib
import sys
from typing import Any, TextIO

MOST_SHOWN = 320  # characters of a value; a path of a usual length is shown whole

_SHOWN = reprlib.Repr()
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxother = 3, MOST_SHOWN, MOST_SHOWN
_SHOWN.maxdict = _SHOWN.maxlist = _SHOWN.maxtuple = _SHOWN.maxset = 6


def printable(text: str) -> str:
    """Return a text as one line of characters that show; others as `\\x1b`, `\\n`, `\\u202e`.

    A byte of a file name that is not UTF-8 becomes `\\xe9`.
    """
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # as Python stands for a byte of a file name
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def shown(value: Any) -> str:
    """Return the start of a value's repr for a message: one short line, however large it is."""
    text = printable(_SHOWN.repr(value))
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


def say(*lines: str, file: TextIO | None = None) -> None:
    """Print lines, by default to standard output."""
    for line in lines:
        print(printable(line), file=file or sys.stdout)


class LineFormatter(logging.Formatter):
    """Formats a record as one line."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def spell_out_what_cannot_be_encoded() -> None:
    """Let no character end this process because the terminal's encoding lacks it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a test may have put something else there
            stream.reconfigure(errors="backslashreplace")
