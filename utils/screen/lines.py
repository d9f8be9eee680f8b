"""Log lines that do not break a progress bar, and that fit the terminal."""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap
from collections.abc import Iterable

from tqdm import tqdm

from utils.screen.text import as_message, discard_unread, write_what_cannot_be_encoded

CLEAR_LINE = "\r\033[K"
NO_BREAK = "\u00a0"


class LineHandler(logging.StreamHandler):
    """Writes log records, each on lines of its own: a bar is cleared first and drawn again."""

    def format(self, record: logging.LogRecord) -> str:
        return as_message(super().format(record))

    def emit(self, record: logging.LogRecord) -> None:
        with tqdm.external_write_mode(file=self.stream):
            if self.stream.isatty():
                self.stream.write(CLEAR_LINE)  # another rank's bar may stand there
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Go on without a log once its reader has ended; the work matters more."""
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            discard_unread()
        else:
            super().handleError(record)


def begin_lines(speaker: str, level: int) -> None:
    """Write log records and Python's warnings to standard output, each on its own line.

    Args:
        speaker: written before each record.
        level: of the least important records that are written.
    """
    write_what_cannot_be_encoded()
    handler = LineHandler(sys.stdout)
    logging.basicConfig(format=f"{speaker}%(message)s", level=level, handlers=[handler])
    logging.captureWarnings(True)


def joined(parts: Iterable[str]) -> str:
    """Return parts of a line with two spaces between them.

    On a terminal that is too narrow the line is broken between parts; a log has it whole.
    """
    line = "  ".join(part.replace(" ", NO_BREAK) for part in parts)
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(line, max(width, 20), subsequent_indent="  ", break_on_hyphens=False)
    return line.replace(NO_BREAK, " ")
