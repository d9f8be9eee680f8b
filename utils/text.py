"""Text for people: untrusted content cannot control the terminal or imitate our messages.

File names, class names and file headers may contain escape codes, line ends, bidirectional marks
and bytes that are not text.
"""

import io
import os
import select
import sys
from typing import TextIO

FORMULAS = tuple("=+-@＝＋－＠")  # a spreadsheet evaluates cells that begin so
STDOUT, STDERR = 1, 2  # sys.stdout may have been replaced by an object without a descriptor


def count(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun, such as "12,000 images".

    Args:
        nouns: the plural, if it does not just add an "s".
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def printable(text: str) -> str:
    r"""Return a text as one line, with non-printable characters escaped: \x1b, \n, \u202e.

    A non-UTF-8 byte of a file name becomes \xe9.
    """
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # surrogateescape: a byte of a file name
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def csv_cell(text: str) -> str:
    """Return a text for a CSV cell: `printable`, and not evaluated as a formula.

    Source: OWASP, CSV Injection.
    """
    text = printable(text)
    return f"'{text}" if text.startswith(FORMULAS) else text


def printable_lines(text: str) -> str:
    """Make each line of a text `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def as_message(text: str) -> str:
    """Make a message that may quote untrusted text printable, keeping its lines.

    A line end may come from the quoted text, so all lines but the first are indented.
    """
    first, *others = text.split("\n")
    return "\n".join([printable(first), *(_indented(printable(line)) for line in others)])


def _indented(line: str) -> str:
    return f"  {line}" if line and not line.startswith("  ") else line


def say(*lines: str, file: TextIO | None = None) -> None:
    """Print lines, each made `printable`; by default to standard output."""
    for line in map(printable, lines):
        print(line, file=file)


def write_what_cannot_be_encoded() -> None:
    """Escape characters that the terminal's encoding lacks instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a caller may have replaced it
            stream.reconfigure(errors="backslashreplace")


def has_no_reader(descriptor: int) -> bool:
    """Return whether a stream is a pipe whose reader has exited, as in `| head`.

    Windows cannot tell: where output fails, it is taken to be the standard one.
    """
    if not hasattr(select, "poll"):
        return descriptor == STDOUT
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are always reported
    return bool(poll.poll(0))


def discard_unread() -> None:
    """Discard output, now and later, to a standard stream whose reader has exited.

    Otherwise Python would fail to flush its buffers at exit and return code 120.
    """
    for descriptor in filter(has_no_reader, (STDOUT, STDERR)):
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)
