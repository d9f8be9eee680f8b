"""Text for a person: nothing from outside controls the terminal or looks like our words.

File names, class names and the headers of files may hold escape codes, line ends, marks that turn
the direction of writing, and bytes that are no text.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TextIO

FORMULAS = tuple("=+-@＝＋－＠")  # how a cell begins that a spreadsheet computes
STDOUT, STDERR = 1, 2  # sys.stdout may be replaced by something without a descriptor


def count(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with the noun that fits it, as "12,000 images".

    Args:
        nouns: the plural, if it is not the noun and an "s".
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def printable(text: str) -> str:
    r"""Return a text as one line of characters that show; others become \x1b, \n, \u202e.

    A byte of a file name that is not UTF-8 becomes \xe9.
    """
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # so Python keeps a byte of a file name
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def csv_cell(text: str) -> str:
    """Return a text for a cell of a CSV file: `printable`, and no formula to a spreadsheet.

    Source: OWASP, CSV Injection.
    """
    text = printable(text)
    return f"'{text}" if text.startswith(FORMULAS) else text


def printable_lines(text: str) -> str:
    """Return a text of several lines, each of them `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def as_message(text: str) -> str:
    """Return a text of ours with text from outside in it: printable, and lines as they are.

    A line end may be foreign too, so no line but the first begins at the margin, as ours do.
    """
    first, *others = text.split("\n")
    return "\n".join([printable(first), *(_indented(printable(line)) for line in others)])


def _indented(line: str) -> str:
    return f"  {line}" if line and not line.startswith("  ") else line


def say(*lines: str, file: TextIO | None = None) -> None:
    """Print lines, each of them made `printable`; by default to standard output."""
    for line in lines:
        print(printable(line), file=file)


def write_what_cannot_be_encoded() -> None:
    """Escape characters that the terminal's encoding lacks, so that they end no command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a caller may have put something else there
            stream.reconfigure(errors="backslashreplace")


def stdout_has_no_reader() -> bool:
    """Return whether standard output is a pipe whose reader has ended, as in `| head`."""
    return _has_no_reader(STDOUT)


def _has_no_reader(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)  # an error of the descriptor is reported unasked
    return bool(poll.poll(0))


def discard_unread() -> None:
    """Discard from now on what nobody reads of both standard outputs, and what buffers hold of it.

    Without it, Python would try to write the buffers when it ends, and end with code 120.
    """
    for descriptor in filter(_has_no_reader, (STDOUT, STDERR)):
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)
